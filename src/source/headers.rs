//! Headers of a fetched record.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rdkafka::message::{BorrowedMessage, Headers as _, Message};

use crate::schema::{Headers, header};

/// The headers of a record. rdkafka panics on a name that is not UTF-8, which Kafka accepts: such a header
/// is left out, and a mark stands behind the others.
pub(super) fn headers(message: &BorrowedMessage<'_>) -> Headers {
    let Some(all) = message.headers() else {
        return Headers::new();
    };
    let mut unreadable = false;
    let mut read = |i: usize| {
        let one = || all.try_get(i).map(|h| (h.key.to_owned(), h.value.map(<[u8]>::to_vec)));
        catch_unwind(AssertUnwindSafe(one)).unwrap_or_else(|_| {
            unreadable = true;
            None
        })
    };
    let mut out: Headers = (0..all.count()).filter_map(&mut read).collect();
    if unreadable {
        out.push((header::UNREADABLE.to_owned(), None));
    }
    out
}
