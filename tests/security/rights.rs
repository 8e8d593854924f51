//! Access rights of the test's users, set over the loopback listener by the three requests that Kafka has for
//! them (protocol guide: CreateAcls, DeleteAcls, DescribeAcls, version 1). A JVM for each change takes seconds.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::Value;

const DESCRIBE: i16 = 29;
const CREATE: i16 = 30;
const DELETE: i16 = 31;
const ANY: i8 = 1;
const ALLOW: i8 = 3;

/// One right of a principal, as the protocol numbers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Right {
    resource: i8,
    pub(crate) name: String,
    pattern: i8,
    operation: i8,
    /// As `topology acls` prints it: `READ on topic x`.
    pub(crate) text: String,
    pub(crate) advised: bool,
}

impl Right {
    /// From a line of `topology acls --output json`.
    pub(crate) fn parse(line: &str) -> Self {
        let v: Value = serde_json::from_str(line).unwrap();
        let text = |key: &str| v[key].as_str().unwrap().to_owned();
        let resource = match text("resource").as_str() {
            "topic" => 2,
            "group" => 3,
            "transactional-id" => 5,
            other => panic!("{other}"),
        };
        let operation = match text("operation").as_str() {
            "READ" => 3,
            "WRITE" => 4,
            "CREATE" => 5,
            "DESCRIBE" => 8,
            "DESCRIBE_CONFIGS" => 10,
            other => panic!("{other}"),
        };
        let pattern = if v["prefixed"].as_bool().unwrap() { 4 } else { 3 };
        let what = format!("{} on {} {}", text("operation"), text("resource").replace('-', " "), text("name"));
        let advised = v["advised"].as_bool().unwrap();
        Self { resource, name: text("name"), pattern, operation, text: what, advised }
    }
}

#[derive(Default)]
struct Body(Vec<u8>);

impl Body {
    fn i8(mut self, v: i8) -> Self {
        self.0.push(v.to_be_bytes()[0]);
        self
    }

    fn i32(mut self, v: usize) -> Self {
        self.0.extend(i32::try_from(v).unwrap().to_be_bytes());
        self
    }

    fn text(mut self, v: Option<&str>) -> Self {
        let length = v.map_or(-1, |v| i16::try_from(v.len()).unwrap());
        self.0.extend(length.to_be_bytes());
        self.0.extend(v.unwrap_or_default().as_bytes());
        self
    }

    fn right(self, r: &Right, principal: &str) -> Self {
        let body = self.i8(r.resource).text(Some(&r.name)).i8(r.pattern).text(Some(principal)).text(Some("*"));
        body.i8(r.operation).i8(ALLOW)
    }

    /// Everything that a principal has.
    fn all_of(self, principal: &str) -> Self {
        self.i8(ANY).text(None).i8(ANY).text(Some(principal)).text(None).i8(ANY).i8(ANY)
    }
}

/// A reader of an answer.
struct Answer(std::io::Cursor<Vec<u8>>);

impl Answer {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    fn i16(&mut self) -> i16 {
        i16::from_be_bytes(self.take())
    }

    fn i32(&mut self) -> i32 {
        i32::from_be_bytes(self.take())
    }

    fn skip_text(&mut self) {
        let mut bytes = vec![0; usize::try_from(self.i16()).unwrap_or_default()];
        self.0.read_exact(&mut bytes).unwrap();
    }

    fn no_error(&mut self) {
        let code = self.i16();
        self.skip_text();
        assert_eq!(code, 0, "the broker refuses a change of rights");
    }
}

fn ask(bootstrap: &str, api: i16, body: Body) -> Answer {
    let mut request = Vec::new();
    request.extend(api.to_be_bytes());
    request.extend(1_i16.to_be_bytes());
    request.extend(7_i32.to_be_bytes());
    request.extend((-1_i16).to_be_bytes());
    request.extend(body.0);
    let mut stream = TcpStream::connect(bootstrap).unwrap();
    stream.write_all(&u32::try_from(request.len()).unwrap().to_be_bytes()).unwrap();
    stream.write_all(&request).unwrap();
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut bytes = vec![0; usize::try_from(u32::from_be_bytes(length)).unwrap()];
    stream.read_exact(&mut bytes).unwrap();
    let mut answer = Answer(std::io::Cursor::new(bytes));
    assert_eq!(answer.i32(), 7, "the answer is to this request");
    let _throttled_for = answer.i32();
    answer
}

fn count(bootstrap: &str, principal: &str) -> usize {
    let mut answer = ask(bootstrap, DESCRIBE, Body::default().all_of(principal));
    answer.no_error();
    let mut found = 0;
    for _ in 0..answer.i32() {
        let _resource: [u8; 1] = answer.take();
        answer.skip_text();
        let _pattern: [u8; 1] = answer.take();
        for _ in 0..answer.i32() {
            answer.skip_text();
            answer.skip_text();
            let _operation_and_permission: [u8; 2] = answer.take();
            found += 1;
        }
    }
    found
}

/// Gives a principal exactly these rights, and waits until the broker knows.
pub(crate) fn set(bootstrap: &str, principal: &str, rights: &[Right]) {
    let mut answer = ask(bootstrap, DELETE, Body::default().i32(1).all_of(principal));
    assert_eq!(answer.i32(), 1);
    answer.no_error();
    wait(bootstrap, principal, 0);
    give(bootstrap, principal, rights);
    wait(bootstrap, principal, rights.len());
}

/// Adds rights.
pub(crate) fn give(bootstrap: &str, principal: &str, rights: &[Right]) {
    let body = rights.iter().fold(Body::default().i32(rights.len()), |body, r| body.right(r, principal));
    let mut answer = ask(bootstrap, CREATE, body);
    assert_eq!(usize::try_from(answer.i32()).unwrap(), rights.len());
    rights.iter().for_each(|_| answer.no_error());
}

fn wait(bootstrap: &str, principal: &str, wanted: usize) {
    let until = Instant::now() + Duration::from_secs(60);
    while count(bootstrap, principal) != wanted {
        assert!(Instant::now() < until, "{principal} has {} rights, not {wanted}", count(bootstrap, principal));
        std::thread::sleep(Duration::from_millis(20));
    }
}
