//! Snapshots of texts, kept as files. `SIGNOFF_UPDATE_SNAPSHOTS=1` writes them again.

use std::path::Path;

/// Compares a text with the snapshot at this path below the folder of the tests.
///
/// # Panics
/// The texts differ, or the new snapshot cannot be written.
#[expect(clippy::unwrap_used, reason = "a test that cannot write its snapshot fails")]
#[track_caller]
pub fn matches_snapshot(path: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("SIGNOFF_UPDATE_SNAPSHOTS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    let differing = text.lines().zip(stored.lines()).position(|(new, old)| new != old);
    assert!(
        stored == text,
        "{} differs from line {} on: look at the change, then write it with SIGNOFF_UPDATE_SNAPSHOTS=1",
        path.display(),
        differing.unwrap_or_else(|| stored.lines().count().min(text.lines().count())) + 1
    );
}
