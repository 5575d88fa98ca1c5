//! The import circles within a crate: modules of which each imports, directly or through the others, every other one.
//!
//! A module with everything below it counts as one module among its siblings, and its children are checked among each
//! other. An import of a child from a module above it is not counted, nor the reverse, because children share the items
//! of their parent. Below the modules of [`STRICT`] both are counted, and no circle is allowed. A name that a module
//! re-exports counts as an import of the module that defines it.
//!
//! Pipeline: read files *(I/O)* -> imports -> resolve -> circles *(pure)*.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use signoff_tests::cargo::{root, shown};

use crate::imports::{self, Imports};

/// The folders of the crates that are checked.
const CRATES: [&str; 3] = ["operator", "tests", "fuzz"];
/// The most modules of a circle.
const MOST: usize = 3;
/// The modules whose own file counts as a module among their children, by the folder of their crate. No two of these
/// modules import each other, directly or through others.
const STRICT: [(&str, &str); 1] = [("operator/engine/src", "steps")];
/// The last part of the name of a module's own file, where the file counts as a module.
const OWN_FILE: &str = "self";
/// The most re-exports that are followed to a definition.
const MOST_REEXPORTS: usize = 16;

/// A module of a crate by its path; the crate's root is empty.
type Module = Vec<String>;

/// The imports between siblings: the importing module, the imported module, and one place of the import.
type Edges = BTreeMap<Module, BTreeMap<Module, String>>;

/// Returns a sentence for each circle of more than [`MOST`] modules in a crate of this workspace, for each circle below
/// a module of [`STRICT`], and for each module of [`STRICT`] that does not exist.
///
/// # Errors
/// A file that cannot be read or is not Rust.
pub(super) fn find_problems() -> Result<Vec<String>> {
    let mut roots = Vec::new();
    for folder in CRATES {
        for entry in fs::read_dir(root().join(folder)).with_context(|| format!("reading {folder}"))? {
            roots.extend(Some(entry?.path().join("src")).filter(|folder| folder.is_dir()));
        }
    }
    let mut problems = Vec::new();
    while let Some(folder) = roots.pop() {
        let mut files = BTreeMap::new();
        read_modules(&folder, &Module::new(), &mut files, &mut roots)?;
        let name = shown(&folder).to_string();
        let strict = STRICT.iter().filter(|(folder, _)| *folder == name);
        let strict: Vec<&str> = strict.map(|(_, module)| *module).collect();
        problems.extend(find_circles(&files, &strict).iter().map(|circle| format!("{name}: {circle}")));
    }
    problems.sort();
    Ok(problems)
}

/// Reads the modules of a folder and its subfolders. A folder with a `main.rs` is a program with modules of its own,
/// and is added to `roots`.
fn read_modules(
    folder: &Path,
    above: &Module,
    files: &mut BTreeMap<Module, Imports>,
    roots: &mut Vec<PathBuf>,
) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let module = [above.as_slice(), std::slice::from_ref(&stem)].concat();
        if path.is_dir() {
            if path.join("main.rs").is_file() {
                roots.push(path);
            } else {
                read_modules(&path, &module, files, roots)?;
            }
        } else if path.extension().is_some_and(|end| end == "rs") {
            let is_of_folder = ["lib", "main", "mod"].contains(&stem.as_str());
            let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            let imports = Imports::read(&text).with_context(|| path.display().to_string())?;
            // `main.rs` beside `lib.rs` names modules of the same folder.
            files.entry(if is_of_folder { above.clone() } else { module }).or_default().add(imports);
        }
    }
    Ok(())
}

/// Returns a sentence for each circle of more than [`MOST`] modules, and for each circle below a module of `strict`.
fn find_circles(files: &BTreeMap<Module, Imports>, strict: &[&str]) -> Vec<String> {
    let strict: Vec<Module> = strict.iter().map(|path| path.split("::").map(str::to_owned).collect()).collect();
    let is_test = |module: &Module| {
        (0..module.len()).any(|at| files.get(&module[..at]).is_some_and(|above| above.tests.contains(&module[at])))
    };
    let files: BTreeMap<&Module, &Imports> = files.iter().filter(|(module, _)| !is_test(module)).collect();
    let names = find_names(&files);
    let mut edges = Edges::new();
    for (module, imports) in &files {
        for path in &imports.paths {
            let Some(written) = path_from_root(&files, module, path) else { continue };
            let defined_in = resolve(&files, &names, written, 0);
            if let Some((from, to)) = siblings(module, &defined_in, &strict) {
                let place = format!("{} in {}", path.segments.join("::"), module.join("::"));
                edges.entry(from).or_default().entry(to).or_insert(place);
            }
        }
    }
    let max_modules = |group: &BTreeSet<&Module>| {
        let is_strict =
            group.first().is_some_and(|first| strict.iter().any(|above| above[..] == first[..first.len() - 1]));
        if is_strict { 1 } else { MOST }
    };
    let missing = strict.iter().filter(|module| !files.contains_key(module)).map(|module| {
        format!("there is no module {}; change STRICT in operator/xtask/src/lint/circles.rs", module.join("::"))
    });
    let groups = find_groups(&edges);
    let circles = groups.iter().filter(|group| group.len() > max_modules(group));
    missing.chain(circles.map(|group| describe(group, &edges, max_modules(group)))).collect()
}

/// Returns the siblings of which one imports the other: two modules, or the modules above them. `None` if one is above
/// the other, unless the upper one is a module of `strict`.
fn siblings(from: &Module, to: &Module, strict: &[Module]) -> Option<(Module, Module)> {
    let shared = from.iter().zip(to).take_while(|(from, to)| from == to).count();
    let sibling = |module: &Module| match module.get(..=shared) {
        Some(sibling) => Some(sibling.to_vec()),
        None => strict.contains(module).then(|| [module.as_slice(), &[OWN_FILE.to_owned()]].concat()),
    };
    (from != to).then(|| sibling(from).zip(sibling(to))).flatten()
}

/// Returns the paths within this crate that `use` declarations bring into modules, by module and name.
fn find_names(files: &BTreeMap<&Module, &Imports>) -> BTreeMap<(Module, String), Module> {
    let mut names = BTreeMap::new();
    for (module, imports) in files {
        for import in &imports.names {
            if let Some(path) = path_from_root(files, module, &import.path) {
                names.insert(([module.as_slice(), &import.path.inline].concat(), import.name.clone()), path);
            }
        }
    }
    names
}

/// Returns the path from the crate's root, or `None` for a path into another crate.
fn path_from_root(files: &BTreeMap<&Module, &Imports>, module: &Module, path: &imports::Path) -> Option<Module> {
    let mut base = [module.as_slice(), &path.inline].concat();
    let mut rest = path.segments.as_slice();
    match rest.first()?.as_str() {
        "crate" => (base, rest) = (Module::new(), &rest[1..]),
        "self" => rest = &rest[1..],
        "super" => {
            while let Some(("super", behind)) = rest.split_first().map(|(first, behind)| (first.as_str(), behind)) {
                base.pop()?;
                rest = behind;
            }
        }
        child => {
            let is_child = files.contains_key(&[base.as_slice(), &[child.to_owned()]].concat());
            is_child.then_some(())?;
        }
    }
    Some([base.as_slice(), rest].concat())
}

/// Returns the module that defines the item of a path from the crate's root.
fn resolve(
    files: &BTreeMap<&Module, &Imports>,
    names: &BTreeMap<(Module, String), Module>,
    path: Module,
    followed: usize,
) -> Module {
    let mut module = Module::new();
    for (position, segment) in path.iter().enumerate() {
        let below = [module.as_slice(), std::slice::from_ref(segment)].concat();
        if files.contains_key(&below) {
            module = below;
            continue;
        }
        let reexport = names.get(&(module.clone(), segment.clone())).filter(|target| **target != path[..=position]);
        if let (Some(target), true) = (reexport, followed < MOST_REEXPORTS) {
            let rest = [target.as_slice(), &path[position + 1..]].concat();
            return resolve(files, names, rest, followed + 1);
        }
        break;
    }
    module
}

/// Returns the modules that reach each other, in groups of two and more.
fn find_groups(edges: &Edges) -> Vec<BTreeSet<&Module>> {
    let reached: BTreeMap<&Module, BTreeSet<&Module>> = edges.keys().map(|from| (from, reach(edges, from))).collect();
    let mut groups = BTreeSet::new();
    for (from, to) in &reached {
        let is_mutual = |other: &&&Module| reached.get(**other).is_some_and(|others| others.contains(from));
        let group: BTreeSet<&Module> = to.iter().filter(is_mutual).copied().collect();
        if group.len() > 1 {
            groups.insert(group);
        }
    }
    groups.into_iter().collect()
}

/// Returns every module that is imported from `from`, directly or through others.
fn reach<'e>(edges: &'e Edges, from: &Module) -> BTreeSet<&'e Module> {
    let mut reached = BTreeSet::new();
    let mut open: VecDeque<&Module> = edges.get(from).into_iter().flat_map(BTreeMap::keys).collect();
    while let Some(module) = open.pop_front() {
        if reached.insert(module) {
            open.extend(edges.get(module).into_iter().flat_map(BTreeMap::keys));
        }
    }
    reached
}

/// Returns a walk through all modules of a group that ends where it began, each step with its import, and the remedy.
fn describe(group: &BTreeSet<&Module>, edges: &Edges, most: usize) -> String {
    let mut remaining = group.clone();
    let Some(first) = remaining.pop_first() else { return String::new() };
    let (mut walk, mut current) = (Vec::new(), first);
    loop {
        let goal = if remaining.is_empty() { BTreeSet::from([first]) } else { remaining.clone() };
        let Some(steps) = shortest_walk(edges, group, current, &goal) else { break };
        for (from, to) in steps.windows(2).map(|pair| (pair[0], pair[1])) {
            walk.push(format!("{} -> {} ({})", from.join("::"), to.join("::"), edges[from][to]));
            remaining.remove(to);
            current = to;
        }
        if goal == BTreeSet::from([first]) {
            break;
        }
    }
    let may = if most > 1 { format!("at most {most} may") } else { "none may there".to_owned() };
    format!(
        "{} modules import each other in a circle, and {may}: {}; move what one of these imports names into \
         the module that imports it, or into a module of its own",
        group.len(),
        walk.join(", ")
    )
}

/// Returns the shortest walk within a group from a module to one of the goals.
fn shortest_walk<'e>(
    edges: &'e Edges,
    group: &BTreeSet<&'e Module>,
    from: &'e Module,
    goals: &BTreeSet<&'e Module>,
) -> Option<Vec<&'e Module>> {
    let mut visited = BTreeSet::new();
    let mut open = VecDeque::from([vec![from]]);
    while let Some(walk) = open.pop_front() {
        for next in edges.get(*walk.last()?).into_iter().flat_map(BTreeMap::keys).filter(|next| group.contains(next)) {
            let longer = [walk.as_slice(), &[next]].concat();
            if goals.contains(next) {
                return Some(longer);
            }
            if visited.insert(next) {
                open.push_back(longer);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::{Imports, Module, find_circles};

    fn find_all_circles(files: &[(&str, &str)]) -> Vec<String> {
        find_circles_below(files, &[])
    }

    fn find_circles_below(files: &[(&str, &str)], strict: &[&str]) -> Vec<String> {
        let module =
            |path: &str| path.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect::<Module>();
        let read = |(path, source): &(&str, &str)| (module(path), Imports::read(source).unwrap());
        find_circles(&files.iter().map(read).collect(), strict)
    }

    #[test]
    fn a_circle_of_four_is_named_with_its_path_and_the_remedy() {
        let found = find_all_circles(&[
            ("", "mod a; mod b; mod c; mod d; mod e;"),
            ("a", "use crate::b::B;"),
            ("b", "fn f() { crate::c::f() }"),
            ("c", "use super::{d::D, e::E};"),
            ("d", "use crate::{a, e};"),
            ("e", "pub struct E;"),
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
        let walk =
            "a -> b (crate::b::B in a), b -> c (crate::c::f in b), c -> d (super::d::D in c), d -> a (crate::a in d)";
        assert!(
            found[0].contains(&format!("4 modules import each other in a circle, and at most 3 may: {walk}; move")),
            "{found:?}"
        );
    }

    #[test]
    fn a_tree_passes() {
        let files = [
            ("", "mod a; mod b; mod c; mod d;"),
            ("a", "mod child; use crate::{b, c, d};"),
            ("a::child", "use super::A; use crate::d::D;"),
            ("b", "use crate::{c, d};"),
            ("c", "use crate::d;"),
            ("d", "pub struct D;"),
        ];
        assert_eq!(find_all_circles(&files), [] as [String; 0]);
    }

    #[test]
    fn a_circle_of_three_passes() {
        assert_eq!(
            find_all_circles(&[("a", "use crate::b;"), ("b", "use crate::c;"), ("c", "use crate::a;")]),
            [] as [String; 0]
        );
    }

    #[test]
    fn a_circle_through_children_and_reexports_is_found() {
        let files = [
            ("", "pub use a::A;"),
            ("a", "mod inner; pub use inner::A;"),
            ("a::inner", "use crate::b::B;"),
            ("b", "mod child;"),
            ("b::child", "use crate::c::C;"),
            ("c", "use crate::d::D;"),
            ("d", "use crate::A;"),
        ];
        assert_eq!(find_all_circles(&files).len(), 1);
    }

    #[test]
    fn siblings_that_import_each_other_through_their_parent_are_found() {
        let parent = ("p", "mod a; mod b; mod c; mod d; use a::A; use b::B; use c::C; use d::D;");
        let circle = [parent, ("p::a", "use super::B;"), ("p::b", "use super::C;"), ("p::c", "use super::D;")];
        assert_eq!(find_all_circles(&circle), [] as [String; 0]);
        let closed = [circle.as_slice(), &[("p::d", "use super::A;")]].concat();
        assert_eq!(find_all_circles(&closed).len(), 1);
    }

    #[test]
    fn a_circle_of_parent_and_child_is_found_below_a_strict_module() {
        let planted = [
            ("", "mod p; mod q;"),
            ("p", "mod a; mod b; pub use b::B; pub struct P; fn f() { a::f() }"),
            ("p::a", "mod inner;"),
            ("p::a::inner", "use crate::p::{B, P};"),
            ("p::b", "pub struct B;"),
        ];
        assert_eq!(find_all_circles(&planted), [] as [String; 0]);
        let found_below_p = find_circles_below(&planted, &["p"]);
        assert_eq!(found_below_p.len(), 1, "{found_below_p:?}");
        let walk = "p::a -> p::self (crate::p::P in p::a::inner), p::self -> p::a (a::f in p)";
        let circle = format!("2 modules import each other in a circle, and none may there: {walk}; move");
        assert!(found_below_p[0].contains(&circle), "{found_below_p:?}");
    }

    #[test]
    fn a_circle_of_two_children_is_found_below_a_strict_module() {
        let planted = [
            ("p", "mod a; mod b;"),
            ("p::a", "use super::b::B;"),
            ("p::b", "mod c;"),
            ("p::b::c", "use crate::p::a::A;"),
        ];
        assert_eq!(find_all_circles(&planted), [] as [String; 0]);
        assert_eq!(find_circles_below(&planted, &["p"]).len(), 1);
    }

    #[test]
    fn a_strict_module_passes_whose_children_import_in_one_direction() {
        let files = [
            ("", "mod p; mod q;"),
            ("p", "mod a; mod b; pub use a::A; pub use b::B; fn f() { a::f() }"),
            ("p::a", "use super::B; use crate::q::Q;"),
            ("p::b", "mod one; mod two;"),
            ("p::b::one", "use super::two::Two;"),
            ("p::b::two", "use super::one::One;"),
            ("q", "use crate::p::A;"),
        ];
        assert_eq!(find_circles_below(&files, &["p"]), [] as [String; 0]);
    }

    #[test]
    fn a_strict_module_that_is_missing_is_named() {
        assert_eq!(find_circles_below(&[("a", "")], &["p"]).len(), 1);
    }

    #[test]
    fn tests_are_not_counted() {
        let tests = ("d", "#[cfg(test)] mod tests { use crate::a::A; }");
        let files = [("a", "use crate::b;"), ("b", "use crate::c;"), ("c", "use crate::d;"), tests];
        assert_eq!(find_all_circles(&files), [] as [String; 0]);
        let apart = [("d", "#[cfg(test)] mod tests;"), ("d::tests", "use crate::a::A;")];
        assert_eq!(find_all_circles(&[&files[..3], &apart].concat()), [] as [String; 0]);
    }
}
