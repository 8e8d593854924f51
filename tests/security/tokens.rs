//! A token endpoint (OAuth 2.0 client credentials) on loopback: signs RS256 tokens that the broker checks
//! against its key set.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::UNIX_EPOCH;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

pub(crate) const CLIENT: &str = "processor";
pub(crate) const SECRET: &str = "client-secret-5c1b9d";

/// The endpoint; it lives as long as the test process.
pub(crate) struct Endpoint {
    address: String,
}

impl Endpoint {
    pub(crate) fn start(secured: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let folder = secured.to_owned();
        std::thread::spawn(move || listener.incoming().for_each(|stream| serve(stream.unwrap(), &folder)));
        Self { address }
    }

    /// `good`, `expired`, or `foreign` (signed by another key).
    pub(crate) fn url(&self, kind: &str) -> String {
        format!("http://{}/{kind}", self.address)
    }
}

fn serve(stream: TcpStream, folder: &Path) {
    let mut reader = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or_default() == 0 {
            return;
        }
        if line.trim().is_empty() {
            break;
        }
        lines.push(line.trim().to_owned());
    }
    let header = |name: &str| {
        let found = lines.iter().skip(1).filter_map(|l| l.split_once(": ")).find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, v)| v.to_owned())
    };
    let mut body = vec![0; header("content-length").map_or(0, |l| l.parse().unwrap())];
    reader.read_exact(&mut body).unwrap();
    let known = format!("Basic {}", STANDARD.encode(format!("{CLIENT}:{SECRET}")));
    let path = lines[0].split(' ').nth(1).unwrap_or_default().to_owned();
    let (status, answer) = if header("authorization").as_deref() == Some(&known) {
        ("200 OK", format!(r#"{{"access_token":"{}","token_type":"Bearer","expires_in":300}}"#, token(&path, folder)))
    } else {
        ("401 Unauthorized", r#"{"error":"invalid_client"}"#.to_owned())
    };
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n", answer.len());
    let _ = reader.get_mut().write_all(format!("{head}Connection: close\r\n\r\n{answer}").as_bytes());
}

fn token(path: &str, folder: &Path) -> String {
    let now = i64::try_from(UNIX_EPOCH.elapsed().unwrap().as_secs()).unwrap();
    let (expires, key) = match path {
        "/expired" => (now - 60, "token.key"),
        "/foreign" => (now + 300, "other-token.key"),
        _ => (now + 300, "token.key"),
    };
    let claims = serde_json::json!({
        "iss": "https://memsluice.test", "aud": "kafka", "sub": CLIENT, "iat": now - 120, "exp": expires,
    });
    let header = r#"{"alg":"RS256","kid":"memsluice","typ":"JWT"}"#;
    let body = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims.to_string()));
    format!("{body}.{}", URL_SAFE_NO_PAD.encode(signature(&body, folder.join(key))))
}

fn signature(body: &str, key: PathBuf) -> Vec<u8> {
    let mut command = Command::new("openssl");
    command.args(["dgst", "-sha256", "-sign"]).arg(key).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("openssl is installed");
    child.stdin.take().unwrap().write_all(body.as_bytes()).unwrap();
    child.wait_with_output().unwrap().stdout
}
