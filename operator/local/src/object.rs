//! Objects as files: one line with the digest of the other lines, then the object as JSON, which is also YAML.
//!
//! A file that was changed by anything else is an error.

use std::{fs, io, path::Path};

use serde::{Serialize, de::DeserializeOwned};
use signoff_api::Digest;

use super::error::Error;
use crate::atomic_file;

const HEAD: &str = "# Written by signoff and not to be edited: ";
const TAIL: &str = " is the digest of the lines below.\n";

/// Renders the file of an object.
pub(super) fn encode<T: Serialize>(object: &T) -> Result<Vec<u8>, serde_json::Error> {
    Ok(with_digest(&serde_json::to_vec_pretty(object)?))
}

/// Returns the lines of an object with their digest above them.
pub fn with_digest(body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("{HEAD}{}{TAIL}", Digest::of_bytes(body)).into_bytes();
    bytes.extend(body);
    bytes
}

/// Parses the file of an object.
///
/// # Errors
/// The part that was changed.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let end = bytes.iter().position(|byte| *byte == b'\n').ok_or("its first line is not complete")?;
    let (line, body) = bytes.split_at(end + 1);
    let digest = std::str::from_utf8(line).ok().and_then(|line| line.strip_prefix(HEAD)?.strip_suffix(TAIL));
    let digest = digest.ok_or("its first line holds no digest")?;
    if Digest::of_bytes(body).as_str() != digest {
        return Err("its digest does not match".to_owned());
    }
    serde_json::from_slice(body).map_err(|why| format!("it is not an object of this kind: {why}"))
}

/// Writes an object's file atomically.
pub(super) fn write<T: Serialize>(file: &Path, object: &T) -> Result<(), Error> {
    let bytes = encode(object).map_err(io::Error::other);
    bytes.and_then(|bytes| atomic_file::write(file, &bytes)).map_err(Error::file("cannot write", file))
}

/// Reads an object's file, or returns `None` if it does not exist.
pub(super) fn read<T: DeserializeOwned>(file: &Path) -> Result<Option<T>, Error> {
    let bytes = match fs::read(file) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(Error::file("cannot read", file)(cause)),
    };
    let object = decode(&bytes).map_err(|why| Error::Damaged { file: file.to_owned(), why })?;
    Ok(Some(object))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_file_is_also_yaml_with_the_same_content() {
        let object = json!({"text": "# no comment\n---\n\u{1b}\u{85}\u{2028}: - \t", "n": 0.1, "none": null});
        let bytes = encode(&object).unwrap();
        assert_eq!(decode::<Value>(&bytes).unwrap(), object);
        let text = json!({"text": "# no comment\n---\n: - \té", "none": null});
        let yaml = String::from_utf8(encode(&text).unwrap()).unwrap();
        assert_eq!(serde_saphyr::from_str::<Value>(&yaml).unwrap(), text);
    }

    #[test]
    fn a_cut_or_changed_file_is_refused() {
        let bytes = encode(&json!({"phase": "Waiting", "seq": 4})).unwrap();
        for end in 0..bytes.len() {
            assert!(decode::<Value>(&bytes[..end]).is_err(), "cut after {end} bytes");
        }
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(decode::<Value>(&changed).is_err(), "changed at {at}");
        }
        let longer = [bytes, b"\n".to_vec()].concat();
        assert!(decode::<Value>(&longer).unwrap_err().contains("digest"));
    }
}
