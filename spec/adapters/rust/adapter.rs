//! rustc --edition 2021 -O adapter.rs && ./adapter: answers in lines, without JSON (spec/09-conformance.md, section 9.2).
mod decoder;

use std::io::BufRead;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn main() {
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let (op, value) = line.split_once(' ').unwrap_or((&line, ""));
        if op == "hello" {
            println!("name example (Rust)\nversion 1\nops decode\nend");
            continue;
        }
        match decoder::decode(&unhex(value)) {
            Err(error) => println!("error {error}"),
            Ok(None) => println!("plain"),
            Ok(Some(records)) => {
                for record in records {
                    println!("partition_key {}", hex(record.partition_key.as_bytes()));
                    if let Some(key) = record.explicit_hash_key {
                        println!("explicit_hash_key {}", hex(key.as_bytes()));
                    }
                    println!("data {}", hex(&record.data));
                }
            }
        }
        println!("end");
    }
}
