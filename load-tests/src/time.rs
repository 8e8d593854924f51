//! Record times. Wall time is never read: records carry times of their own.

use jiff::Timestamp;

/// RFC 3339 in UTC of milliseconds since the Unix epoch; `None` outside the calendar.
pub(crate) fn rfc3339(ms: i64) -> Option<String> {
    Timestamp::from_millisecond(ms).ok().map(|t| t.to_string())
}

/// Milliseconds since the Unix epoch of an RFC 3339 time, or of midnight UTC of a plain date.
pub(crate) fn millis(text: &str) -> Option<i64> {
    let parse = |t: &str| t.parse::<Timestamp>().ok().map(Timestamp::as_millisecond);
    parse(text).or_else(|| if text.len() == 10 { parse(&format!("{text}T00:00:00Z")) } else { None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_times() {
        assert_eq!(millis("2026-01-01"), Some(1_767_225_600_000));
        assert_eq!(millis("2026-01-01T00:00:01Z"), Some(1_767_225_601_000));
        assert_eq!(millis("yesterday"), None);
        assert_eq!(rfc3339(1_767_225_600_001).as_deref(), Some("2026-01-01T00:00:00.001Z"));
    }
}
