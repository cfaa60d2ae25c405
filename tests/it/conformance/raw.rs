//! Bytes as a program in another language would write them, from docs/wire-format.md alone.

/// An envelope whose id is a text, without parts.
pub(super) fn envelope(version: u8, id: &str, name: &str, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x99, version];
    text(&mut bytes, id);
    text(&mut bytes, name);
    bytes.push(0xc0);
    bytes.push(0xcf);
    bytes.extend(1_700_000_000_000_u64.to_be_bytes());
    bytes.push(0xc6);
    bytes.extend(u32::try_from(payload.len()).unwrap().to_be_bytes());
    bytes.extend(payload);
    bytes.extend([0, 0, 0x80]);
    bytes
}

/// The same with one part, whose value is given as bytes.
pub(super) fn envelope_with_part(id: &str, name: &str, key: &str, value: &[u8]) -> Vec<u8> {
    let mut bytes = envelope(1, id, name, &[0xc0]);
    bytes.pop();
    bytes.push(0x81);
    text(&mut bytes, key);
    bytes.extend(value);
    bytes
}

fn text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend([0xd9, u8::try_from(text.len()).unwrap()]);
    bytes.extend(text.as_bytes());
}

/// The bytes of a golden file.
pub(super) fn golden(name: &str) -> Vec<u8> {
    let root = env!("CARGO_MANIFEST_DIR");
    let hex = std::fs::read_to_string(format!("{root}/tests/golden/{name}")).unwrap();
    let digits: Vec<u32> = hex.chars().filter_map(|c| c.to_digit(16)).collect();
    let pairs = digits.chunks_exact(2);
    pairs
        .map(|pair| u8::try_from(pair[0] * 16 + pair[1]).unwrap())
        .collect()
}
