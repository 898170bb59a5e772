//! A small decoder of aggregated records, as an example: put yours in its place.
use std::collections::HashMap;

pub struct UserRecord {
    pub partition_key: String,
    pub explicit_hash_key: Option<String>,
    pub data: Vec<u8>,
}

/// The user records; None for a plain record.
pub fn decode(data: &[u8]) -> Result<Option<Vec<UserRecord>>, String> {
    if data.len() <= 20 || !data.starts_with(&[0xF3, 0x89, 0x9A, 0xC2]) {
        return Ok(None);
    }
    let (message, digest) = data[4..].split_at(data.len() - 20);
    if md5(message) != digest {
        return Err("the digest is wrong".into());
    }
    let mut tables: [Vec<&[u8]>; 3] = Default::default();
    for field in fields(message)? {
        match (field.number, field.bytes) {
            (1..=3, Some(bytes)) => tables[field.number as usize - 1].push(bytes),
            (1..=3, None) => return Err("a field of the wrong type".into()),
            _ => {}
        }
    }
    if tables[2].is_empty() {
        return Err("no user records".into());
    }
    let mut records = Vec::new();
    for body in &tables[2] {
        let last: HashMap<u64, Field> = fields(body)?.into_iter().map(|f| (f.number, f)).collect();
        let index = last.get(&1).and_then(|f| f.varint).ok_or("no key index")?;
        let data = last.get(&3).and_then(|f| f.bytes).ok_or("no data")?;
        let explicit_hash_key = match last.get(&2) {
            Some(field) => Some(key(&tables[1], field.varint.ok_or("no index")?)?),
            None => None,
        };
        records.push(UserRecord { partition_key: key(&tables[0], index)?, explicit_hash_key, data: data.to_vec() });
    }
    Ok(Some(records))
}

fn key(table: &[&[u8]], index: u64) -> Result<String, String> {
    let bytes = table.get(index as usize).ok_or("no such key")?;
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    if text.chars().count() > 256 {
        return Err("a key is too long".into());
    }
    Ok(text.to_string())
}

struct Field<'a> {
    number: u64,
    varint: Option<u64>,
    bytes: Option<&'a [u8]>,
}

fn fields(mut left: &[u8]) -> Result<Vec<Field<'_>>, String> {
    let mut found = Vec::new();
    while !left.is_empty() {
        let tag = varint(&mut left)?;
        let (mut number, mut size) = (None, 0);
        match tag & 7 {
            0 => number = Some(varint(&mut left)?),
            1 => size = 8,
            2 => size = varint(&mut left)?,
            5 => size = 4,
            _ => return Err("unknown wire type".into()),
        }
        if tag >> 3 == 0 || tag >> 3 >= 1 << 29 || size > left.len() as u64 {
            return Err("no such field, or it is cut".into());
        }
        let (bytes, rest) = left.split_at(size as usize);
        left = rest;
        found.push(Field { number: tag >> 3, varint: number, bytes: (tag & 7 == 2).then_some(bytes) });
    }
    Ok(found)
}

fn varint(left: &mut &[u8]) -> Result<u64, String> {
    let mut value = 0;
    for shift in (0..70).step_by(7) {
        let (&byte, rest) = left.split_first().ok_or("a number is cut")?;
        *left = rest;
        if shift == 63 && byte > 1 {
            break;
        }
        value |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err("a number is too long".into())
}

/// Rust's standard library has no MD5.
fn md5(message: &[u8]) -> [u8; 16] {
    const TURNS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];
    let mut padded = message.to_vec();
    padded.push(0x80);
    while padded.len() % 64 != 56 {
        padded.push(0);
    }
    padded.extend((message.len() as u64 * 8).to_le_bytes());
    let mut state: [u32; 4] = [0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476];
    for block in padded.chunks(64) {
        let words: Vec<u32> = block.chunks(4).map(|w| u32::from_le_bytes(w.try_into().unwrap())).collect();
        let [mut a, mut b, mut c, mut d] = state;
        for i in 0..64 {
            let (mixed, word) = match i / 16 {
                0 => ((b & c) | (!b & d), i),
                1 => ((d & b) | (!d & c), 5 * i + 1),
                2 => (b ^ c ^ d, 3 * i + 5),
                _ => (c ^ (b | !d), 7 * i),
            };
            let sine = ((i as f64 + 1.0).sin().abs() * 4294967296.0) as u32;
            let sum = a.wrapping_add(mixed).wrapping_add(sine).wrapping_add(words[word % 16]);
            (a, d, c) = (d, c, b);
            b = b.wrapping_add(sum.rotate_left(TURNS[i / 16][i % 4]));
        }
        for (part, add) in state.iter_mut().zip([a, b, c, d]) {
            *part = part.wrapping_add(add);
        }
    }
    let mut digest = [0; 16];
    for (place, part) in digest.chunks_mut(4).zip(state) {
        place.copy_from_slice(&part.to_le_bytes());
    }
    digest
}
