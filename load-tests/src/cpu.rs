//! CPU time of this process, all threads.

use std::path::Path;

use crate::error::{Error, Result};

/// Microseconds of one tick: Linux reports to user space in 1/100 s.
const TICK_MICROS: u64 = 10_000;

/// User plus system time so far, microseconds, to the nearest 10 ms.
pub(crate) fn micros() -> Result<u64> {
    let path = Path::new("/proc/self/stat");
    let text = std::fs::read_to_string(path).map_err(|e| Error::io("read", path, e))?;
    ticks(&text).map(|t| t * TICK_MICROS).ok_or_else(|| Error::Input("/proc/self/stat has another format".to_owned()))
}

/// `utime + stime`: fields 14 and 15. Field 2, the name, may hold spaces and brackets.
fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_of_a_name_with_brackets() {
        let stat = "42 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 130 7 0 0 20 0";
        assert_eq!(ticks(stat), Some(137));
        assert!(micros().is_ok());
    }
}
