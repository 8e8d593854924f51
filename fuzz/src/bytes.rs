//! Bytes taken apart into the parts of a record; never fails, what is missing is empty.

use memsluice::schema::{Headers, header};
use memsluice::source::{At, Fetched};
use memsluice::topology::Role;

/// Names that the program reads, so that a short input reaches them.
const NAMES: [&str; 20] = [
    header::RECORD_ID,
    header::UNREADABLE,
    header::SOURCE_STAMP,
    header::REDRIVE,
    header::DLQ_SKIP,
    header::EXCEPTION,
    header::TOPIC,
    header::PARTITION,
    header::OFFSET,
    header::DLQ_ORIGIN,
    header::DLQ_HANDLED,
    header::DLQ_LETTER,
    header::STUB,
    header::NULL_KEY,
    header::ERROR_CODE,
    header::ERROR_STAGE,
    header::MESSAGE,
    header::VERSION,
    header::TRACEPARENT,
    "memsluice-original.memsluice-record-id",
];

pub(crate) struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    pub(crate) fn new(data: &'a [u8]) -> Self {
        Self(data)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub(crate) fn number(&mut self) -> i64 {
        let Some((first, rest)) = self.0.split_first_chunk::<8>() else { return 0 };
        self.0 = rest;
        i64::from_le_bytes(*first)
    }

    /// As many bytes as the next one says.
    pub(crate) fn chunk(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte());
        self.take(length)
    }

    pub(crate) fn take(&mut self, length: usize) -> &'a [u8] {
        let length = length.min(self.0.len());
        let (chunk, rest) = self.0.split_at(length);
        self.0 = rest;
        chunk
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    fn headers(&mut self) -> Headers {
        let count = self.byte() % 16;
        (0..count)
            .map(|_| {
                let name = match usize::from(self.byte()) {
                    255 => String::from_utf8_lossy(self.chunk()).into_owned(),
                    n => NAMES[n % NAMES.len()].to_owned(),
                };
                let value = (self.byte() != 0).then(|| self.chunk().to_vec());
                (name, value)
            })
            .collect()
    }

    /// JSON as it stands, under the key `acme/support`; other bytes say partition, key, headers and value.
    pub(crate) fn record(&mut self, role: Role) -> Fetched {
        let mut at = At { generation: 1, role, partition: 0, offset: 7, timestamp: 1_790_000_000_000 };
        if self.0.first().is_none_or(|b| *b == b'{') {
            let value = Some(self.rest().to_vec());
            return Fetched { at, key: Some(b"acme/support".to_vec()), value, headers: Headers::new() };
        }
        let flags = self.byte();
        at.partition = i32::from(flags >> 4 & 3);
        if flags & 4 != 0 {
            // Kafka's offsets are below its largest number.
            at.offset = self.number().clamp(0, i64::MAX - 1);
            at.timestamp = self.number();
        }
        let key = (flags & 1 != 0).then(|| self.chunk().to_vec());
        let headers = self.headers();
        let value = (flags & 2 != 0).then(|| self.rest().to_vec());
        Fetched { at, key, value, headers }
    }
}
