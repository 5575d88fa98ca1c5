//! The allowed dependencies between the crates of this workspace, checked by `cargo metadata`.

use signoff_tests::cargo::Metadata;

/// The crates that each crate may use. A crate that is not listed is an error.
const ARROWS: &[(&str, &[&str])] = &[
    ("signoff-api", &[]),
    ("signoff-expr", &[]),
    ("signoff-engine", &["signoff-api", "signoff-expr"]),
    ("signoff-manifest", &["signoff-api", "signoff-expr", "signoff-engine"]),
    ("signoff-strands", &["signoff-api", "signoff-expr", "signoff-engine", "signoff-manifest"]),
    ("signoff-executor", &["signoff-api", "signoff-expr", "signoff-engine"]),
    ("signoff-mcp", &["signoff-api", "signoff-engine", "signoff-executor"]),
    ("signoff-notify", &["signoff-api", "signoff-expr", "signoff-executor"]),
    ("signoff-local", &["signoff-api", "signoff-expr", "signoff-engine", "signoff-executor", "signoff-mcp"]),
    ("signoff-cluster", &["signoff-api", "signoff-expr"]),
    ("signoff-listen", &[]),
    ("signoff-admission", &["signoff-api", "signoff-expr", "signoff-cluster"]),
    (
        "signoff-controller",
        &[
            "signoff-api",
            "signoff-expr",
            "signoff-engine",
            "signoff-executor",
            "signoff-cluster",
            "signoff-listen",
            "signoff-mcp",
            "signoff-notify",
            "signoff-admission",
        ],
    ),
    ("signoff-review", &["signoff-api", "signoff-expr", "signoff-engine", "signoff-executor", "signoff-cluster"]),
    (
        "signoff-web",
        &[
            "signoff-api",
            "signoff-expr",
            "signoff-engine",
            "signoff-manifest",
            "signoff-executor",
            "signoff-cluster",
            "signoff-listen",
            "signoff-review",
        ],
    ),
    (
        "signoff-cli",
        &[
            "signoff-api",
            "signoff-expr",
            "signoff-engine",
            "signoff-manifest",
            "signoff-strands",
            "signoff-executor",
            "signoff-mcp",
            "signoff-local",
            "signoff-cluster",
            "signoff-admission",
            "signoff-review",
        ],
    ),
];

/// The crates that may use all others: they are no part of the product.
const OUTSIDE: [&str; 4] = ["xtask", "signoff-tests", "signoff-bench", "signoff-fuzz-drivers"];

/// The crates that a pure crate must not use: no clock, no network, no executor, no randomness.
const IMPURE: [&str; 9] = ["tokio", "reqwest", "hyper", "axum", "rand", "fastrand", "getrandom", "async-std", "smol"];
const PURE: [&str; 3] = ["signoff-api", "signoff-expr", "signoff-engine"];

/// Returns every dependency that is not allowed.
pub(crate) fn find_problems(metadata: &Metadata) -> Vec<String> {
    let mut problems = Vec::new();
    for package in &metadata.packages {
        let name = package.name.as_str();
        if OUTSIDE.contains(&name) {
            continue;
        }
        let Some((_, allowed)) = ARROWS.iter().find(|(from, _)| *from == name) else {
            problems.push(format!("crate {name} has no place among the arrows: add it to {}", file!()));
            continue;
        };
        for dependency in package.dependencies.iter().map(|dependency| dependency.name.as_str()) {
            let is_ours = metadata.packages.iter().any(|other| other.name == dependency);
            if is_ours && !allowed.contains(&dependency) {
                problems.push(format!("{name} must not depend on {dependency}; it may use: {}", list_crates(allowed)));
            }
            if PURE.contains(&name) && IMPURE.contains(&dependency) {
                problems.push(format!("{name} is pure and must not depend on {dependency}"));
            }
            if ["signoff-expr", "signoff-engine"].contains(&name) && dependency == "kube" {
                problems
                    .push(format!("{name} must not know the Kubernetes client: take what it needs from signoff-api"));
            }
        }
    }
    problems
}

fn list_crates(allowed: &[&str]) -> String {
    if allowed.is_empty() { "no crate of this workspace".to_owned() } else { allowed.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::find_problems;
    use signoff_tests::cargo::{Dependency, Metadata, Package};

    fn workspace(packages: &[(&str, &[&str])]) -> Metadata {
        let package = |(name, dependencies): &(&str, &[&str])| Package {
            name: (*name).to_owned(),
            dependencies: dependencies.iter().map(|name| Dependency { name: (*name).to_owned() }).collect(),
            targets: Vec::new(),
        };
        Metadata { packages: packages.iter().map(package).collect(), target_directory: "target".into() }
    }

    #[test]
    fn arrows_to_the_left_are_fine() {
        assert!(
            find_problems(&workspace(&[("signoff-api", &["kube"]), ("signoff-engine", &["signoff-api"])])).is_empty()
        );
    }

    #[test]
    fn an_arrow_to_the_right_is_a_problem() {
        let found = find_problems(&workspace(&[("signoff-api", &["signoff-engine"]), ("signoff-engine", &[])]));
        assert_eq!(found, ["signoff-api must not depend on signoff-engine; it may use: no crate of this workspace"]);
    }

    #[test]
    fn an_executor_in_the_engine_is_a_problem() {
        assert_eq!(find_problems(&workspace(&[("signoff-engine", &["tokio"])])).len(), 1);
    }

    #[test]
    fn an_arrow_from_the_expressions_is_a_problem() {
        let found =
            find_problems(&workspace(&[("signoff-expr", &["signoff-engine"]), ("signoff-engine", &["signoff-expr"])]));
        assert_eq!(found, ["signoff-expr must not depend on signoff-engine; it may use: no crate of this workspace"]);
    }

    #[test]
    fn a_crate_without_listed_dependencies_is_a_problem() {
        assert_eq!(find_problems(&workspace(&[("signoff-other", &[])])).len(), 1);
    }
}
