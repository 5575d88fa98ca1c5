//! Archives that have the same bytes for the same files: no times, no owners, in the order of the calls.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Result;
use miniz_oxide::deflate::compress_to_vec;
use tar::{Builder, EntryType, Header};

/// The time of all files, 1980-01-01: archivers warn of files that are older.
const MODIFIED: u64 = 315_532_800;
/// The level of DEFLATE. A higher level doubles the time for 1 % of the size.
const LEVEL: u8 = 7;

/// A tar archive in memory. Its paths have no leading `/`, and a folder comes before the files in it.
pub struct Archive {
    tar: Builder<Vec<u8>>,
    paths: BTreeSet<PathBuf>,
}

impl Default for Archive {
    fn default() -> Self {
        Self { tar: Builder::new(Vec::new()), paths: BTreeSet::new() }
    }
}

impl Archive {
    /// Adds a file, unless the path exists already.
    ///
    /// # Errors
    /// The path is too long for an archive.
    pub fn file(&mut self, path: &str, mode: u32, bytes: &[u8]) -> Result<()> {
        self.append(EntryType::Regular, path, mode, None, bytes)
    }

    /// Adds a folder.
    ///
    /// # Errors
    /// As [`Self::file`].
    pub fn folder(&mut self, path: &str, mode: u32) -> Result<()> {
        self.append(EntryType::Directory, path, mode, None, &[])
    }

    /// Adds a symbolic link.
    ///
    /// # Errors
    /// As [`Self::file`].
    pub fn link(&mut self, path: &str, target: &str) -> Result<()> {
        self.append(EntryType::Symlink, path, 0o777, Some(target), &[])
    }

    /// Returns the bytes of the archive.
    ///
    /// # Errors
    /// None: the archive is in memory, where a write cannot fail.
    pub fn finish(self) -> Result<Vec<u8>> {
        Ok(self.tar.into_inner()?)
    }

    fn append(&mut self, kind: EntryType, path: &str, mode: u32, target: Option<&str>, bytes: &[u8]) -> Result<()> {
        let path = Path::new(path.trim_start_matches('/'));
        if let Some(parent) =
            path.parent().filter(|parent| !parent.as_os_str().is_empty() && !self.paths.contains(*parent))
        {
            self.append(EntryType::Directory, &parent.display().to_string(), 0o755, None, &[])?;
        }
        if !self.paths.insert(path.to_owned()) {
            return Ok(());
        }
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(MODIFIED);
        header.set_size(bytes.len().try_into()?);
        match target {
            Some(target) => self.tar.append_link(&mut header, path, target)?,
            None => self.tar.append_data(&mut header, path, bytes)?,
        }
        Ok(())
    }
}

/// Returns `bytes` in the format of gzip, without name and time.
#[must_use]
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    // Magic number, DEFLATE, no flags, no time, no hint about the level, no system.
    let mut compressed = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    compressed.extend(compress_to_vec(bytes, LEVEL));
    compressed.extend(crc32(bytes).to_le_bytes());
    // The format has the length modulo 2^32.
    let length = (bytes.len() as u64 & u64::from(u32::MAX)).to_le_bytes();
    compressed.extend(&length[..4]);
    compressed
}

/// Returns the checksum of gzip: CRC-32 of ISO 3309, with a table of 256 entries.
fn crc32(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut index = 0;
        while index < 256 {
            let mut value = index as u32;
            let mut bit = 0;
            while bit < 8 {
                value = if value & 1 == 1 { value >> 1 ^ 0xedb8_8320 } else { value >> 1 };
                bit += 1;
            }
            table[index] = value;
            index += 1;
        }
        table
    };
    !bytes.iter().fold(u32::MAX, |crc, byte| crc >> 8 ^ TABLE[((crc ^ u32::from(*byte)) & 0xff) as usize])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::{Archive, crc32, gzip};

    #[test]
    fn the_checksum_is_that_of_the_standard() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
    }

    #[test]
    fn gzip_and_tar_of_the_system_read_an_archive() {
        let mut archive = Archive::default();
        let text = "a line\n".repeat(1000);
        archive.file("folder/file", 0o644, text.as_bytes()).unwrap();
        let mut tar = Command::new("tar").args(["-xzO"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        tar.stdin.take().unwrap().write_all(&gzip(&archive.finish().unwrap())).unwrap();
        let output = tar.wait_with_output().unwrap();
        assert!(output.status.success());
        assert_eq!(String::from_utf8(output.stdout).unwrap(), text);
    }
}
