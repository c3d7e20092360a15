//! A small HTTP server: the kernel's counters, as a page that a browser can show.
#![no_std]
#![no_main]

use core::fmt::Write;
use heapless::String;
use mainspring_user::caps;
use mainspring_user::net::{NetError, Network, TcpStream};
use mainspring_user::say;

mainspring_user::program!(main);

/// The longest request head that is read, and the longest page.
const REQUEST: usize = 1024;
const PAGE: usize = 6144;

fn main() -> i64 {
    let network = Network::new(caps::need("call:net1"));
    loop {
        let listener = match network.listen_when_up(80, 8) {
            Ok(listener) => listener,
            Err(why) => {
                say!("net-status: cannot listen: {why:?}");
                return 1;
            }
        };
        say!("net-status: listening port=80");
        // When the network process ends, another one may come.
        while let Ok(stream) = listener.accept() {
            // A client that goes away in the middle is its own loss.
            let _gone = serve(stream);
            let _over = stream.close();
        }
    }
}

fn serve(stream: TcpStream) -> Result<(), NetError> {
    let mut request = [0; REQUEST];
    let mut len = 0;
    while !request[..len].windows(4).any(|end| end == b"\r\n\r\n") {
        if len == REQUEST {
            return stream
                .write_all(b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\n\r\n");
        }
        match stream.read(&mut request[len..])? {
            0 => return Ok(()),
            more => len += more,
        }
    }
    if !request.starts_with(b"GET ") {
        return stream
            .write_all(b"HTTP/1.1 405 Method Not Allowed\r\nAllow: GET\r\nContent-Length: 0\r\n\r\n");
    }
    if !request.starts_with(b"GET / ") {
        return stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    }
    let mut page: String<PAGE> = String::new();
    // What does not fit is left out.
    let _cut = write_page(&mut page);
    let mut head: String<160> = String::new();
    let _fits = write!(
        head,
        "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        page.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(page.as_bytes())
}

fn write_page(page: &mut String<PAGE>) -> core::fmt::Result {
    let Ok(usage) = caps::usage() else { return page.write_str("<p>The kernel does not tell.") };
    write!(
        page,
        "<!doctype html><html lang=en><meta charset=utf-8><title>Mainspring kernel</title>\
         <style>body{{font:16px/1.5 system-ui,sans-serif;margin:2rem;color:#1b1f24;background:#fff}}\
         table{{border-collapse:collapse}}td,th{{padding:.2rem .8rem;text-align:right;border-bottom:1px solid #d0d7de}}\
         th:first-child,td:first-child{{text-align:left}}</style>\
         <h1>Mainspring kernel</h1>\
         <p>Up for {} ms. Processes: {}. Threads: {}. Free frames: {}. Messages of devices: {}.</p>\
         <table><thead><tr><th scope=col>CPU<th scope=col>busy ms<th scope=col>idle ms<th scope=col>timer interrupts\
         <th scope=col>ticks<th scope=col>ticks suppressed<th scope=col>reschedules<th scope=col>steals\
         <th scope=col>direct handoffs</thead><tbody>",
        caps::now() / 1_000_000,
        usage.processes,
        usage.threads,
        usage.free_frames,
        usage.device_interrupts,
    )?;
    for cpu in 0..usage.cpus {
        let Ok(counters) = caps::cpu_counters(cpu) else { continue };
        write!(
            page,
            "<tr><th scope=row>{cpu}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}",
            counters.busy_ns / 1_000_000,
            counters.idle_ns / 1_000_000,
            counters.timer_interrupts,
            counters.ticks,
            counters.ticks_suppressed,
            counters.reschedules_received,
            counters.steals,
            counters.handoffs,
        )?;
    }
    page.write_str("</tbody></table>")
}
