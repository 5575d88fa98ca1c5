//! The check that every build has the same features of dependencies: `cargo xtask` and the benchmarks build one package
//! each, the demo builds the programs, the tests build everything. A crate with other features in one of these builds
//! compiles again, and so does everything that depends on it.
//!
//! **Invariant:** builds nothing; it only asks cargo.

use std::collections::BTreeSet;

use anyhow::Result;
use signoff_tests::cargo::{cargo, output};

/// Returns a sentence for each crate whose features differ.
pub(super) fn find_problems() -> Result<Vec<String>> {
    let all = read_tree(&["--workspace", "--edges", "normal,build,dev"])?;
    let xtask = read_tree(&["--package", "xtask", "--edges", "normal,build"])?;
    let benchmarks = read_tree(&["--package", "signoff-bench", "--edges", "normal,build"])?;
    let programs = read_tree(&["--workspace", "--edges", "normal,build"])?;
    Ok([("xtask", xtask), ("the benchmarks", benchmarks), ("the programs", programs)]
        .iter()
        .flat_map(|(what, own)| find_differences(what, own, &all))
        .collect())
}

/// Returns the crates of a build, a line each with their features.
fn read_tree(selection: &[&str]) -> Result<String> {
    output(cargo(&["tree", "--locked", "--prefix", "none", "--format", "{p} [{f}]"]).args(selection))
}

fn find_differences(what: &str, own: &str, all: &str) -> Vec<String> {
    let crates = |tree| crate_lines(tree).collect::<BTreeSet<_>>();
    let missing = &crates(own) - &crates(all);
    let find_crate = |name: &str| crate_lines(all).find(|line| line.split(" [").next() == Some(name));
    let differ = missing.into_iter().filter_map(|line| Some((line, find_crate(line.split(" [").next()?)?)));
    let describe = |(own, all)| {
        format!("{what} would compile {own}, and the tests compile {all}: add the feature in tests/Cargo.toml")
    };
    differ.map(describe).collect()
}

/// Returns the lines of foreign crates. The workspace's own are skipped, because the feature `endless` of signoff-expr
/// is for tests alone.
fn crate_lines(tree: &str) -> impl Iterator<Item = &str> {
    let lines = tree.lines().map(|line| line.trim_end_matches(" (*)"));
    lines.filter(|line| !line.is_empty() && !line.contains(" (/") && !line.contains(" (proc-macro)"))
}

#[cfg(test)]
mod tests {
    use super::find_differences;

    #[test]
    fn a_crate_with_fewer_features_than_the_tests_have_is_found() {
        let all =
            "tests v1 (/a/tests) []\nlog v0.4.1 [std]\nlibc v0.2.1 [default]\nlibc v0.2.1 [default,std]\nnix v1 []\n";
        let same = "xtask v1 (/a/xtask) []\n\nlog v0.4.1 [std] (*)\nlibc v0.2.1 [default,std]\n";
        assert_eq!(find_differences("xtask", same, all), [] as [String; 0]);
        let other = "log v0.4.1 []\nlibc v0.2.1 [default]\n";
        let found = find_differences("xtask", other, all);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with("xtask would compile log v0.4.1 [], and the tests compile log v0.4.1 [std]"),
            "{found:?}"
        );
    }
}
