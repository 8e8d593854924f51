//! The endpoint: `/metrics`, `/live`, `/ready`, `/startup`. One thread with one tokio worker; it reads
//! atomics and short locks and calls no client. Bodies are never read, one request a connection.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::sync::Semaphore;

use super::{Health, Metrics, Report};
use crate::error::{Code, Error, Result};

/// Longest request line with its headers, bytes.
const MAX_REQUEST: usize = 16 * 1024;
/// A connection lives at most this long.
const CONNECTION: Duration = Duration::from_secs(10);
/// Connections at once; more wait in the listener's queue.
const CONNECTIONS: usize = 64;
/// What Prometheus asks for first.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Listens on `address` (`host:port`; port 0 takes a free one) and serves until the process ends; returns
/// the address in use.
///
/// # Errors
/// `http_unavailable` when the address can't be listened on.
pub fn serve(address: &str, metrics: &'static Metrics, health: &'static Health) -> Result<SocketAddr> {
    let failed = |e: std::io::Error| Error::with(Code::HttpUnavailable, format!("http.listen: can't use {address}"), e);
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let local = listener.local_addr().map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|e| Error::with(Code::Internal, "can't start the HTTP runtime", e))?;
    std::thread::Builder::new()
        .name("memsluice-http".to_owned())
        .spawn(move || runtime.block_on(accept(listener, metrics, health)))
        .map_err(|e| Error::with(Code::Internal, "can't start a thread", e))?;
    Ok(local)
}

async fn accept(listener: TcpListener, metrics: &'static Metrics, health: &'static Health) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "the HTTP endpoint ended"),
    };
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    while let Ok(slot) = slots.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(async move {
                connection(TokioIo::new(stream), metrics, health).await;
                drop(slot);
            })),
            // Out of descriptors, or a peer that went away: both pass.
            Err(error) => {
                tracing::debug!(%error, "accept");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Answers the one request of a connection, for at most 10 s.
pub async fn connection(
    stream: impl hyper::rt::Read + hyper::rt::Write + Unpin,
    metrics: &'static Metrics,
    health: &'static Health,
) {
    let service = service_fn(move |request: Request<Incoming>| async move {
        Ok::<_, Infallible>(answer(request.method(), request.uri().path(), metrics, health))
    });
    let served = hyper::server::conn::http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(MAX_REQUEST)
        .header_read_timeout(None)
        .serve_connection(stream, service);
    match tokio::time::timeout(CONNECTION, served).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "http"),
        Err(_) => tracing::debug!("http: a slow connection was closed"),
    }
}

fn answer(method: &Method, path: &str, metrics: &Metrics, health: &Health) -> Response<Full<Bytes>> {
    if method != Method::GET && method != Method::HEAD {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "GET only\n".to_owned());
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match path {
        "/metrics" => text(StatusCode::OK, OPEN_METRICS, metrics.scrape()),
        "/live" => report(&health.live()),
        "/ready" => report(&health.ready()),
        "/startup" => report(&health.startup()),
        _ => text(StatusCode::NOT_FOUND, "text/plain", "/metrics /live /ready /startup\n".to_owned()),
    }
}

fn report(report: &Report) -> Response<Full<Bytes>> {
    let status = if report.ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    text(status, "application/json", format!("{}\n", report.body))
}

fn text(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    /// What the endpoint says to raw bytes.
    fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        // The peer may answer and close before it has read everything.
        drop(stream.write_all(request));
        let mut bytes = Vec::new();
        drop(stream.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn status(answer: &str) -> &str {
        answer.split_whitespace().nth(1).unwrap_or_default()
    }

    #[test]
    fn serves_what_it_should_and_refuses_the_rest() {
        let health: &'static Health = Box::leak(Box::default());
        let metrics: &'static Metrics = Box::leak(Box::default());
        let address = serve("127.0.0.1:0", metrics, health).unwrap();
        let get = |path: &str| ask(address, format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
        let scraped = get("/metrics");
        assert_eq!(status(&scraped), "200");
        assert!(scraped.contains(OPEN_METRICS) && scraped.ends_with("# EOF\n"), "{scraped}");
        assert_eq!(status(&get("/live")), "200");
        assert_eq!(status(&get("/startup")), "503");
        let ready = get("/ready?verbose=1");
        assert_eq!(status(&ready), "503");
        assert!(ready.contains(r#""why":"starting""#), "{ready}");
        assert_eq!(status(&get("/")), "404");
        assert_eq!(status(&get("/metrics/../etc/passwd")), "404");
        let post = ask(address, b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999\r\n\r\n");
        assert_eq!(status(&post), "405");
        let long = format!("GET /live HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "a".repeat(MAX_REQUEST * 2));
        assert!(["431", "414", "400"].contains(&status(&ask(address, long.as_bytes()))));
        assert_eq!(status(&ask(address, b"\x16\x03\x01 no http\r\n\r\n")), "400");
        // A peer that says nothing holds one slot only.
        let _silent = TcpStream::connect(address).unwrap();
        assert_eq!(status(&get("/live")), "200");
    }

    #[test]
    fn a_busy_port_is_an_error() {
        let held = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = held.local_addr().unwrap().to_string();
        let error = serve(&address, Box::leak(Box::default()), Box::leak(Box::default())).unwrap_err();
        assert_eq!((error.code(), error.exit_status()), (Code::HttpUnavailable, 2));
        assert!(error.message().contains(&address), "{error}");
    }
}
