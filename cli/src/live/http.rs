//! The page's side: as much of HTTP as a browser and Prometheus need to read four things.
//!
//! One request for each connection, `GET` alone, at most [`LONGEST_HEAD`] bytes within [`PATIENCE`]. A path that does not
//! begin with the secret is answered as one that does not exist.

use super::Shown;
use mainspring_report::prometheus;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// The longest head of a request that is read.
const LONGEST_HEAD: usize = 8 << 10;
/// How long a request may take, and its answer.
const PATIENCE: Duration = Duration::from_secs(2);

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// What is answered.
struct Answer {
    status: &'static str,
    kind: &'static str,
    body: Vec<u8>,
}

impl Answer {
    fn of(status: &'static str) -> Self {
        Self { status, kind: "text/plain; charset=utf-8", body: format!("{status}\n").into_bytes() }
    }

    fn ok(kind: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self { status: "200 OK", kind, body: body.into() }
    }

    fn bytes(&self) -> Vec<u8> {
        let allow = if self.status.starts_with("405") { "Allow: GET\r\n" } else { "" };
        // Nothing but this page's own files, no frame around it, and no word to others about its address.
        let head = format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{allow}Cache-Control: no-store\r\n\
             Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
             img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'\r\n\
             X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n",
            self.status,
            self.kind,
            self.body.len()
        );
        [head.as_bytes(), &self.body].concat()
    }
}

/// Answers one request. Who does not ask, or does not read, is dropped.
pub fn answer(shown: &Shown, secret: &str, mut stream: TcpStream) {
    let Some(head) = read_head(&mut stream) else { return };
    let answer = judge(shown, secret, &head);
    if stream.set_write_timeout(Some(PATIENCE)).is_ok() {
        let _ = stream.write_all(&answer.bytes());
    }
}

/// The head of a request, without what follows it. `None` if it does not come, or is too long.
fn read_head(stream: &mut TcpStream) -> Option<String> {
    stream.set_nonblocking(false).ok()?;
    let (began, mut head) = (Instant::now(), Vec::new());
    loop {
        if let Some(end) = head.windows(4).position(|four| four == b"\r\n\r\n") {
            head.truncate(end);
            return String::from_utf8(head).ok();
        }
        let left = PATIENCE.checked_sub(began.elapsed()).filter(|left| !left.is_zero())?;
        stream.set_read_timeout(Some(left)).ok()?;
        let mut room = [0; 1024];
        let read = stream.read(&mut room).ok().filter(|read| *read > 0)?;
        head.extend_from_slice(&room[..read]);
        if head.len() > LONGEST_HEAD {
            return None;
        }
    }
}

fn judge(shown: &Shown, secret: &str, head: &str) -> Answer {
    let mut words = head.lines().next().unwrap_or_default().split(' ');
    let (Some(method), Some(path), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Answer::of("400 Bad Request");
    };
    if !version.starts_with("HTTP/1.") {
        return Answer::of("400 Bad Request");
    }
    if method != "GET" {
        return Answer::of("405 Method Not Allowed");
    }
    let inside = path.strip_prefix('/').and_then(|path| path.split_once('/'));
    let Some((_, file)) = inside.filter(|(given, _)| is_same(given, secret)) else {
        return Answer::of("404 Not Found");
    };
    match file {
        "" => Answer::ok("text/html; charset=utf-8", PAGE),
        "page.css" => Answer::ok("text/css; charset=utf-8", STYLE),
        "page.js" => Answer::ok("text/javascript; charset=utf-8", SCRIPT),
        "frame.json" => match serde_json::to_vec(&*shown.frame()) {
            Ok(frame) => Answer::ok("application/json", frame),
            Err(_) => Answer::of("500 Internal Server Error"),
        },
        "metrics" => Answer::ok("text/plain; version=0.0.4; charset=utf-8", prometheus(&shown.frame())),
        _ => Answer::of("404 Not Found"),
    }
}

/// Whether two secrets are the same. It takes as long for one that is nearly right.
fn is_same(given: &str, secret: &str) -> bool {
    let differ = given.bytes().zip(secret.bytes()).fold(0, |differ, (a, b)| differ | (a ^ b));
    given.len() == secret.len() && differ == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainspring_report::Frame;
    use std::sync::Arc;

    fn asked(head: &str) -> Answer {
        let shown = Shown::default();
        *shown.frame.lock().expect("nobody else") =
            Arc::new(Frame { workload: "w.toml".to_owned(), ..Frame::default() });
        judge(&shown, "0123abcd", head)
    }

    #[test]
    fn the_four_things_are_there_behind_the_secret() {
        for (path, kind, words) in [
            ("", "text/html", "<!doctype html>"),
            ("page.css", "text/css", ":root"),
            ("page.js", "text/javascript", "frame.json"),
            ("frame.json", "application/json", "\"workload\":\"w.toml\""),
            ("metrics", "text/plain; version=0.0.4", "mainspring_time_nanoseconds 0"),
        ] {
            let answer = asked(&format!("GET /0123abcd/{path} HTTP/1.1\r\nHost: x"));
            assert_eq!(answer.status, "200 OK", "{path}");
            assert!(answer.kind.starts_with(kind), "{path}: {}", answer.kind);
            let body = String::from_utf8(answer.body.clone()).expect("text");
            assert!(body.contains(words), "{path}: {body}");
            let whole = String::from_utf8(answer.bytes()).expect("text");
            assert!(whole.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{whole}");
            assert!(whole.ends_with(&body));
        }
    }

    #[test]
    fn nothing_is_there_without_the_secret_and_nothing_but_get_is_done() {
        for (head, status) in [
            ("GET / HTTP/1.1", "404"),
            ("GET /frame.json HTTP/1.1", "404"),
            ("GET /0123abc/frame.json HTTP/1.1", "404"),
            ("GET /0123abcde/frame.json HTTP/1.1", "404"),
            ("GET /0123abce/frame.json HTTP/1.1", "404"),
            ("GET /0123abcd HTTP/1.1", "404"),
            ("GET /0123abcd/../frame.json HTTP/1.1", "404"),
            ("POST /0123abcd/ HTTP/1.1", "405"),
            ("get /0123abcd/ HTTP/1.1", "405"),
            ("GET /0123abcd/ HTTP/2", "400"),
            ("GET  /0123abcd/ HTTP/1.1", "400"),
            ("GET", "400"),
            ("", "400"),
            ("\u{1F600} é \0", "400"),
        ] {
            let answer = asked(head);
            assert!(answer.status.starts_with(status), "{head:?}: {}", answer.status);
            assert!(!String::from_utf8_lossy(&answer.bytes()).contains("w.toml"), "{head:?}");
        }
    }
}
