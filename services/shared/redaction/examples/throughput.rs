//! Redacts so many MiB and says how many. The clock is the caller's:
//!
//! ```text
//! cargo build --release -p belay-redaction --example throughput
//! time target/release/examples/throughput 512 log        # clean log lines, as one text
//! time target/release/examples/throughput 512 code       # this crate's own source, full of `token` and `key`
//! time target/release/examples/throughput 512 stream     # the log again, through a stream in pieces of 8 KiB
//! ```

use std::hint::black_box;

use belay_redaction::{Redactor, Stream};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mebibytes: usize = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(64);
    let kind = arguments.next().unwrap_or_else(|| "log".to_owned());
    let line = |n: usize| {
        let (hash, path) = (n.wrapping_mul(0x9e37_79b9_7f4a_7c15), n % 997);
        format!(
            "2026-01-21T06:11:{:02}.{:06}Z INFO  build: compiled crates/part_{path}/src/lib.rs in {} ms ({hash:016x})\n",
            n % 60,
            n,
            n % 1009
        )
    };
    let text: String = match kind.as_str() {
        "code" => [include_str!("../src/engine.rs"), include_str!("../src/json.rs"), include_str!("../src/values.rs")]
            .concat()
            .repeat(25),
        _ => (0..10_000).map(line).collect(),
    };
    let redactor = Redactor::new();
    let mut hidden = 0;
    let mut done = 0;
    let mut stream = Stream::new(redactor.clone());
    while done < mebibytes << 20 {
        match kind.as_str() {
            "stream" => text
                .as_bytes()
                .chunks(8192)
                .for_each(|piece| hidden += piece.len() - black_box(stream.push(piece)).len().min(piece.len())),
            _ => hidden += black_box(redactor.redact_text(&text)).found.len(),
        }
        done += text.len();
    }
    println!("{kind}: {} MiB, {hidden} hidden or held back", done >> 20);
}
