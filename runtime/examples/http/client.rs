//! A client that knows as little of HTTP as will do.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{SocketAddr, TcpStream};

/// The body of a response with status 200.
pub fn get(address: SocketAddr, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or(ErrorKind::UnexpectedEof)?;
    if !head.starts_with("HTTP/1.1 200 ") {
        return Err(Error::other(head.lines().next().unwrap_or_default().to_owned()));
    }
    Ok(body.to_owned())
}
