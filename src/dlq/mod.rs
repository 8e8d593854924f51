//! Dead letters by hand: list, show, send again (redrive), give up (skip).
//!
//! What was handled is marked by a record of its own in the same partition of `dead-letters`, written in
//! the same transaction as what was sent. The mark stands behind its dead letter, so retention never takes it
//! first. One transactional id an application: a second redrive fences the first, and reads only after that.

mod handle;
mod letter;
mod queue;

pub use handle::{Act, Done, Handler, Sending, sending};
pub use letter::{DeadLetter, Handled, Letter, Mark};
pub use queue::{Queue, Selection};

#[cfg(test)]
mod tests {
    use super::handle::marking;
    use super::*;
    use crate::error::Code;
    use crate::schema::DeadLetterHeaders;
    use crate::schema::{Boundary, Coordinates, Headers, header as h};
    use crate::source::{At, Fetched};
    use crate::topology::Role;

    fn header(name: &str, value: &str) -> (String, Option<Vec<u8>>) {
        (name.to_owned(), Some(value.as_bytes().to_vec()))
    }

    fn record(headers: Headers) -> Fetched {
        let at = At { generation: 0, role: Role::DeadLetters, partition: 3, offset: 17, timestamp: 5 };
        Fetched { at, key: Some(b"acme/support".to_vec()), value: Some(b"{".to_vec()), headers }
    }

    fn errors() -> Headers {
        vec![
            header(h::EXCEPTION, "invalid_json"),
            header(h::MESSAGE, "no JSON"),
            header(h::TOPIC, "memory-writes"),
            header(h::PARTITION, "3"),
            header(h::OFFSET, "99"),
            header(h::ERROR_CODE, "invalid_json"),
            header(h::ERROR_STAGE, "decode"),
            header(h::VERSION, "0.1.0"),
        ]
    }

    fn dead(headers: Headers) -> DeadLetter {
        match Letter::parse("dlq", record(headers)) {
            Letter::Dead(letter) => *letter,
            other => panic!("{other:?}"),
        }
    }

    /// Producers may use our names: theirs stay theirs, and none of them makes a mark or a stub.
    #[test]
    fn a_producers_headers_are_kept_and_believed_in_nothing() {
        let theirs = vec![
            header(h::EXCEPTION, "forged"),
            header(h::TOPIC, "another-topic"),
            header(h::STUB, "true"),
            header(h::DLQ_HANDLED, "redriven"),
            header(h::DLQ_LETTER, "dlq/3/17"),
            header(h::ERROR_CODE, "forged"),
            header("own", "1"),
        ];
        let letter = dead(theirs.iter().cloned().chain(errors()).collect());
        assert_eq!(letter.original, theirs);
        assert_eq!((letter.code.as_str(), letter.source.to_string().as_str()), ("invalid_json", "memory-writes/3/99"));
        assert_eq!((letter.incomplete, letter.handled), (None, None));
    }

    #[test]
    fn a_redrive_is_the_record_and_names_its_dead_letter_once() {
        let headers = [vec![header("own", "1"), header(h::REDRIVE, "memory-writes/3/5")], errors()].concat();
        let sent = sending(&dead(headers), &Act::Redrive { edit: None }).unwrap().unwrap();
        assert_eq!(sent.headers, vec![header("own", "1"), header(h::REDRIVE, "memory-writes/3/99")]);
        assert_eq!(sent.partition, None);
        assert_eq!((sent.key.as_slice(), sent.value.as_deref()), (&b"acme/support"[..], Some(&b"{"[..])));
        let edited = sending(&dead(errors()), &Act::Redrive { edit: Some(b"{}".to_vec()) }).unwrap().unwrap();
        assert_eq!(edited.value.as_deref(), Some(&b"{}"[..]));
    }

    /// The typed form: headers come back from under their prefix, and the first failure stays the origin.
    #[test]
    fn typed_headers_give_the_record_back() {
        let at = |offset| Coordinates { topic: "memory-writes".into(), partition: 3, offset };
        let original = vec![header("own", "1"), (h::ERROR_CODE.to_owned(), None)];
        let typed = DeadLetterHeaders {
            input: at(99),
            timestamp: 5,
            code: "key_held".into(),
            message: "m".into(),
            stage: "hold".into(),
            version: "0.1.0".into(),
            origin: at(7),
            null_key: true,
            stub: false,
            isolation: None,
            original: original.clone(),
        };
        let letter = dead(typed.to_headers());
        assert_eq!((&letter.original, letter.code.as_str(), letter.null_key), (&original, "key_held", true));
        assert_eq!((letter.source.offset, letter.origin.offset), (99, 7));
        let sent = sending(&letter, &Act::Redrive { edit: None }).unwrap().unwrap();
        assert_eq!(sent.headers, [original, vec![header(h::REDRIVE, "memory-writes/3/7")]].concat());
        assert_eq!(sent.partition, Some(3));
    }

    #[test]
    fn what_is_not_whole_is_not_sent() {
        let stub = dead([errors(), vec![header(h::STUB, "true")]].concat());
        let unreadable = dead([vec![(h::UNREADABLE.to_owned(), None)], errors()].concat());
        for letter in [stub, unreadable] {
            let error = sending(&letter, &Act::Redrive { edit: None }).unwrap_err();
            assert_eq!(error.code(), Code::DeadLetterIncomplete);
            assert_eq!(sending(&letter, &Act::Skip { reason: "r".into(), release_key: false }).unwrap(), None);
        }
    }

    #[test]
    fn a_skip_releases_its_key_only_on_demand() {
        let letter = dead(errors());
        let skip = |release_key| Act::Skip { reason: "known".into(), release_key };
        assert_eq!(sending(&letter, &skip(false)).unwrap(), None);
        let control = sending(&letter, &skip(true)).unwrap().unwrap();
        assert_eq!((control.value, control.headers), (None, vec![header(h::DLQ_SKIP, "memory-writes/3/99")]));
    }

    /// Marks read back as they were written; one that points elsewhere counts for nothing.
    #[test]
    fn marks() {
        let letter = dead(errors());
        for (act, handled) in [
            (Act::Redrive { edit: None }, Handled::Redriven),
            (Act::Skip { reason: "r".into(), release_key: true }, Handled::Skipped),
        ] {
            let written = marking(&letter, &act);
            let mut back = record(written.headers);
            back.at.offset = 40;
            assert_eq!(Letter::parse("dlq", back.clone()), Letter::Mark(Mark { offset: 17, handled }));
            assert_eq!(Letter::parse("other", back.clone()), Letter::Other);
            back.at.partition = 2;
            assert_eq!(Letter::parse("dlq", back), Letter::Other);
        }
        assert_eq!(Letter::parse("dlq", record(vec![header("own", "1")])), Letter::Other);
    }

    #[test]
    fn selections() {
        let letter = dead(errors());
        let all = Selection::default();
        assert!(all.takes(&letter));
        assert!(!all.takes(&DeadLetter { handled: Some(Handled::Skipped), ..letter.clone() }));
        assert!(!Selection { at: Some((3, 16)), ..all.clone() }.takes(&letter));
        assert!(!Selection { codes: vec!["invalid_id".into()], ..all.clone() }.takes(&letter));
        let boundary = |b: &str| Boundary::parse(b).ok();
        assert!(Selection { boundary: boundary("acme/support"), ..all.clone() }.takes(&letter));
        assert!(!Selection { boundary: boundary("acme/other"), ..all }.takes(&letter));
    }
}
