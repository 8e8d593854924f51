//! Wall time, in one place. Decisions use record time only; wall time paces commits and marks when
//! something was recorded, and is never part of a canonical body.

use std::time::{Duration, Instant};

/// Milliseconds since the Unix epoch.
pub type Millis = i64;

/// Wall time now.
#[must_use]
#[allow(clippy::disallowed_methods)] // the one place
pub fn wall_millis() -> Millis {
    jiff::Timestamp::now().as_millisecond()
}

/// Monotonic time now.
#[must_use]
pub fn monotonic() -> Instant {
    Instant::now()
}

/// Time that this thread has run: what others do on the machine is not in it.
#[must_use]
pub fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// RFC 3339 in UTC; out-of-range values are clamped to what the calendar can say.
#[must_use]
pub fn rfc3339(ms: Millis) -> String {
    jiff::Timestamp::from_millisecond(ms)
        .unwrap_or(if ms < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX })
        .to_string()
}

/// Parses RFC 3339; `None` when it isn't.
#[must_use]
pub fn parse_rfc3339(text: &str) -> Option<Millis> {
    text.parse::<jiff::Timestamp>().ok().map(|t| t.as_millisecond())
}
