//! Reads values of the changelog: a format byte, then postcard (docs/records.md). Pure.

/// Format byte of every value.
const FORMAT: u8 = 1;

/// A cursor over a value.
#[derive(Debug)]
pub(crate) struct Value<'a>(&'a [u8]);

impl<'a> Value<'a> {
    /// Behind the format byte; `None` for another format.
    pub(crate) fn new(bytes: &'a [u8]) -> Option<Self> {
        let (format, rest) = bytes.split_first()?;
        (*format == FORMAT).then_some(Self(rest))
    }

    /// Whether everything was read.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// LEB128, at most 10 bytes.
    pub(crate) fn unsigned(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for i in 0..10 {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f).checked_shl(7 * i)?;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// Zigzag.
    pub(crate) fn signed(&mut self) -> Option<i64> {
        let value = self.unsigned()?;
        Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    /// So many bytes as they stand.
    pub(crate) fn raw(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    /// Bytes or text behind their length.
    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.unsigned()?).ok()?;
        self.raw(length)
    }

    /// Text.
    pub(crate) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    /// A list behind its length.
    pub(crate) fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let length = self.unsigned()?;
        (0..length).map(|_| item(self)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_postcard_writes_them() {
        // From the postcard specification: varint(u16) 300 and zigzag.
        let mut value = Value::new(&[1, 0xac, 0x02, 0x01, 0x02, 0x7f, 3, b'a', b'b', b'c']).unwrap();
        assert_eq!(value.unsigned(), Some(300));
        assert_eq!((value.signed(), value.signed(), value.signed()), (Some(-1), Some(1), Some(-64)));
        assert_eq!(value.text(), Some("abc"));
        assert!(value.is_empty() && value.unsigned().is_none());
        assert!(Value::new(&[2, 0]).is_none() && Value::new(&[]).is_none());
    }

    #[test]
    fn ends_of_the_range() {
        let mut bytes = vec![1];
        bytes.extend([0xff; 9]);
        bytes.push(1);
        assert_eq!(Value::new(&bytes).unwrap().signed(), Some(i64::MIN));
    }
}
