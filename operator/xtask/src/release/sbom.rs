//! The bill of materials of a release, as CycloneDX 1.6: every crate that is linked into a shipped program, as cargo
//! lists them. Crates that run only during a build or a test are not in it, such as build scripts and procedural
//! macros.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::programs::Library;

/// The crates that are linked into some programs.
pub(super) struct Parts<'a> {
    /// The crates by cargo's own id: the crate, and the ids of its dependencies.
    crates: BTreeMap<&'a str, (&'a Value, BTreeSet<&'a str>)>,
    roots: Vec<&'a str>,
}

impl<'a> Parts<'a> {
    /// Follows the normal dependencies of these packages in the output of `cargo metadata`.
    pub(super) fn find(metadata: &'a Value, packages: &[&str]) -> Result<Self> {
        let by_id = |value: &'a Value| Some((value["id"].as_str()?, value));
        let known: BTreeMap<_, _> = list(&metadata["packages"]).filter_map(by_id).collect();
        let nodes: BTreeMap<_, _> = list(&metadata["resolve"]["nodes"]).filter_map(by_id).collect();
        let is_macro = |id: &str| {
            known.get(id).is_some_and(|package| {
                list(&package["targets"]).any(|target| list(&target["kind"]).any(|kind| kind == "proc-macro"))
            })
        };
        let is_normal = |dependency: &&Value| list(&dependency["dep_kinds"]).any(|kind| kind["kind"].is_null());
        let root = |name: &&str| {
            let mut members = list(&metadata["workspace_members"]).filter_map(Value::as_str);
            let id = members.find(|id| known.get(id).is_some_and(|package| package["name"] == **name));
            id.with_context(|| format!("no package {name} in the workspace"))
        };
        let roots = packages.iter().map(root).collect::<Result<Vec<_>>>()?;
        let mut crates = BTreeMap::new();
        let mut open = roots.clone();
        while let Some(id) = open.pop() {
            if crates.contains_key(id) {
                continue;
            }
            let (package, node) = known.get(id).zip(nodes.get(id)).with_context(|| format!("no package {id}"))?;
            let uses = list(&node["deps"]).filter(is_normal).filter_map(|dependency| dependency["pkg"].as_str());
            let uses: BTreeSet<_> = uses.filter(|id| !is_macro(id)).collect();
            open.extend(&uses);
            crates.insert(id, (*package, uses));
        }
        Ok(Self { crates, roots })
    }

    /// Returns the packages as cargo describes them, by name and version.
    pub(super) fn packages(&self) -> BTreeMap<(&'a str, &'a str), &'a Value> {
        let named = |package: &'a Value| (text(package, "name"), text(package, "version"));
        self.crates.values().map(|(package, _)| (named(package), *package)).collect()
    }

    /// Returns the bill of materials. `lock` is the text of Cargo.lock, which has the hashes of the crates.
    pub(super) fn render_sbom(&self, version: &str, programs: &[&str], lock: &str, libraries: &[Library]) -> Value {
        let hashes = read_hashes(lock);
        let mut components: Vec<Value> = libraries
            .iter()
            .map(|library| {
                let purl = format!("pkg:generic/{}@{}", library.name, library.version);
                json!({
                    "type": "library", "bom-ref": purl, "name": library.name, "version": library.version, "purl": purl,
                    "licenses": [{"expression": library.licence}],
                })
            })
            .collect();
        components.extend(self.packages().into_iter().map(|((name, version), package)| {
            let purl = purl(package);
            let mut component = json!({
                "type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl,
                "licenses": [licence(package)],
            });
            if let Some(hash) = hashes.get(&(name, version)) {
                component["hashes"] = json!([{"alg": "SHA-256", "content": hash}]);
            }
            component
        }));
        let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let refer = |id: &str| self.crates.get(id).map(|(package, _)| purl(package));
        for (package, used) in self.crates.values() {
            uses.entry(purl(package)).or_default().extend(used.iter().filter_map(|id| refer(id)));
        }
        let all_refs = self.roots.iter().filter_map(|id| refer(id));
        let all_refs =
            all_refs.chain(libraries.iter().map(|library| format!("pkg:generic/{}@{}", library.name, library.version)));
        uses.insert("signoff".into(), all_refs.collect());
        let part = |name: &&str| json!({"type": "application", "name": name, "version": version});
        let parts: Vec<_> = programs.iter().map(part).collect();
        json!({
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "version": 1,
            "metadata": {"component": {
                "type": "application", "bom-ref": "signoff", "name": "signoff", "version": version,
                "licenses": [{"expression": env!("CARGO_PKG_LICENSE")}], "components": parts,
            }},
            "components": components,
            "dependencies": uses.iter().map(|(name, uses)| json!({"ref": name, "dependsOn": uses})).collect::<Vec<_>>(),
        })
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text<'a>(package: &'a Value, field: &str) -> &'a str {
    package[field].as_str().unwrap_or_default()
}

fn purl(package: &Value) -> String {
    format!("pkg:cargo/{}@{}", text(package, "name"), text(package, "version").replace('+', "%2B"))
}

/// Returns a licence in the format of SPDX: older crates write `MIT/Apache-2.0`.
fn licence(package: &Value) -> Value {
    match package["license"].as_str() {
        Some(expression) => json!({"expression": expression.replace(" / ", "/").replace('/', " OR ")}),
        None => json!({"license": {"name": format!("as in {}", text(package, "license_file"))}}),
    }
}

/// Returns the hashes in Cargo.lock, by name and version.
fn read_hashes(lock: &str) -> BTreeMap<(&str, &str), &str> {
    let package = |block| {
        let value = |field: &str| {
            let line = str::lines(block).find_map(|line| line.strip_prefix(field)?.strip_prefix(" = "));
            line.map(|value| value.trim_matches('"'))
        };
        Some(((value("name")?, value("version")?), value("checksum")?))
    };
    lock.split("[[package]]").filter_map(package).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::{Value, json};

    use super::{Library, Parts};

    const LOCK: &str = "[[package]]\nname = \"used\"\nversion = \"1.0.0+2\"\nchecksum = \"abcd\"\n\n[[package]]\nname = \"program\"\nversion = \"0.1.0\"\n";

    fn metadata() -> Value {
        let package = |name: &str, version: &str, licence: Option<&str>, kind: &str| {
            json!({
                "id": name, "name": name, "version": version, "license": licence, "license_file": "COPYING",
                "targets": [{"kind": [kind]}],
            })
        };
        let uses = |pkg: &str, kind: Option<&str>| json!({"pkg": pkg, "dep_kinds": [{"kind": kind}]});
        json!({
            "workspace_members": ["program"],
            "packages": [
                package("program", "0.1.0", Some("Apache-2.0"), "bin"), package("used", "1.0.0+2", Some("MIT/Apache-2.0"), "lib"),
                package("deep", "2.0.0", None, "lib"), package("derive", "1.0.0", Some("MIT"), "proc-macro"),
                package("syn", "1.0.0", Some("MIT"), "lib"), package("cc", "1.0.0", Some("MIT"), "lib"),
                package("proptest", "1.0.0", Some("MIT"), "lib"),
            ],
            "resolve": {"nodes": [
                {"id": "program", "deps": [
                    uses("used", None), uses("derive", None), uses("cc", Some("build")), uses("proptest", Some("dev")),
                ]},
                {"id": "used", "deps": [uses("deep", None)]}, {"id": "deep", "deps": []},
                {"id": "derive", "deps": [uses("syn", None)]}, {"id": "syn", "deps": []},
                {"id": "cc", "deps": []}, {"id": "proptest", "deps": []},
            ]},
        })
    }

    #[test]
    fn linked_crates_are_listed_without_those_of_builds_and_tests() {
        let metadata = metadata();
        let libc = Library { name: "libc", version: "1".into(), licence: "MIT" };
        let bill = || {
            Parts::find(&metadata, &["program"]).unwrap().render_sbom(
                "0.1.0",
                &["program"],
                LOCK,
                std::slice::from_ref(&libc),
            )
        };
        let sbom = bill();
        let refs: Vec<_> =
            sbom["components"].as_array().unwrap().iter().map(|one| one["bom-ref"].as_str().unwrap()).collect();
        assert_eq!(
            refs,
            ["pkg:generic/libc@1", "pkg:cargo/deep@2.0.0", "pkg:cargo/program@0.1.0", "pkg:cargo/used@1.0.0%2B2"]
        );
        let used = &sbom["components"][3];
        assert_eq!(used["licenses"], json!([{"expression": "MIT OR Apache-2.0"}]));
        assert_eq!(used["hashes"], json!([{"alg": "SHA-256", "content": "abcd"}]));
        assert_eq!(sbom["components"][1]["licenses"], json!([{"license": {"name": "as in COPYING"}}]));
        assert_eq!(sbom["components"][2]["hashes"], Value::Null);
        let of_all = json!({"ref": "signoff", "dependsOn": ["pkg:cargo/program@0.1.0", "pkg:generic/libc@1"]});
        assert!(sbom["dependencies"].as_array().unwrap().contains(&of_all));
        assert_eq!(bill().to_string(), sbom.to_string());
    }

    #[test]
    fn a_package_that_is_not_there_is_an_error() {
        assert!(Parts::find(&metadata(), &["other"]).is_err());
    }
}
