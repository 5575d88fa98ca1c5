//! The chart as real helm renders it: linted, compared with snapshots, and equal to the generated files.
//! `SIGNOFF_UPDATE_SNAPSHOTS=1` writes the snapshots again.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicySpec;
use serde_json::Value;
use signoff_admission::policies::{self, Identity, PolicyObject};
use signoff_notify::Config;
use signoff_tests::control_plane::clients;
use signoff_tests::page;

use signoff_tests::snapshot::matches_snapshot;

const MUTATING: &str = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns helm's output, or its error.
pub(crate) fn helm(arguments: &[&str]) -> Result<String, String> {
    let home = tempfile::tempdir().unwrap();
    let output = Command::new(clients().unwrap().helm)
        .args(arguments)
        .current_dir(root())
        .env("HELM_CACHE_HOME", home.path())
        .env("HELM_CONFIG_HOME", home.path())
        .env("HELM_DATA_HOME", home.path())
        .output()
        .unwrap();
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).unwrap()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

pub(crate) fn template(arguments: &[&str]) -> Result<String, String> {
    let always = ["template", "signoff", "charts/signoff", "--namespace", "signoff-system", "--kube-version", "1.36.2"];
    helm(&[&always, arguments].concat())
}

/// Returns the rendered documents that are not from these templates.
fn remove_templates(rendered: &str, templates: &[&str]) -> String {
    let source = |document: &&str| {
        document
            .lines()
            .next()
            .is_some_and(|line| !templates.iter().any(|name| line.ends_with(&format!("templates/{name}"))))
    };
    rendered
        .split("---\n")
        .filter(|document| !document.trim().is_empty())
        .filter(source)
        .map(|d| format!("---\n{d}"))
        .collect()
}

#[test]
fn helm_finds_nothing_wrong_with_the_chart() {
    helm(&["lint", "--strict", "charts/signoff"]).unwrap();
}

#[test]
fn the_default_chart_renders_as_its_snapshot() {
    let rendered = template(&["--api-versions", MUTATING]).unwrap();
    matches_snapshot(
        "contract/snapshots/chart-default.yaml",
        &remove_templates(&rendered, &["crds.yaml", "policies.yaml"]),
    );
}

#[test]
fn the_chart_with_every_value_renders_as_its_snapshot() {
    let values = root().join("tests/contract/chart-values.yaml");
    let rendered = template(&["--values", &values.display().to_string()]).unwrap();
    matches_snapshot(
        "contract/snapshots/chart-every-value.yaml",
        &remove_templates(&rendered, &["crds.yaml", "policies.yaml"]),
    );
}

#[test]
fn the_chart_without_the_operator_renders_only_its_identity() {
    let rendered = template(&["--set", "operator.enabled=false"]).unwrap();
    for kind in ["Deployment", "Service", "NetworkPolicy"] {
        assert!(!rendered.contains(&format!("\nkind: {kind}\n")), "{kind}");
    }
    for kind in ["ServiceAccount", "ClusterRole", "ValidatingAdmissionPolicy", "CustomResourceDefinition"] {
        assert!(rendered.contains(&format!("\nkind: {kind}\n")), "{kind}");
    }
}

#[test]
fn the_operator_has_no_rights_on_pods_when_they_are_disabled() {
    let rendered = template(&["--set", "pods.enabled=false"]).unwrap();
    assert!(!rendered.contains("pods/log") && rendered.contains("--no-pods"));
    assert!(template(&[]).unwrap().contains("pods/log"));
}

#[test]
fn secrets_can_be_read_only_in_listed_namespaces() {
    let bindings = |arguments: &[&str]| {
        let rendered = template(arguments).unwrap();
        let documents =
            rendered.split("---\n").filter(|document| document.contains("  name: signoff-operator-secrets"));
        let bindings = documents.filter(|document| document.contains("Binding\n")).map(str::to_owned);
        bindings.collect::<Vec<_>>()
    };
    let reads_secrets = |rendered: &str| {
        let roles = rendered.split("---\n").filter(|document| document.contains("resources: [secrets]"));
        roles.map(|role| role.contains("  name: signoff-operator-secrets\n")).collect::<Vec<_>>()
    };
    assert_eq!(reads_secrets(&template(&[]).unwrap()), [true], "one role, which is bound nowhere");
    assert!(bindings(&[]).is_empty());
    let listed = bindings(&["--set", "secrets.namespaces={finance,shop}"]);
    assert_eq!(listed.len(), 2);
    for (binding, namespace) in listed.iter().zip(["finance", "shop"]) {
        assert!(binding.contains("\nkind: RoleBinding\n") && binding.contains(&format!("  namespace: {namespace}\n")));
    }
}

/// Returns the file of notices that the chart renders with these values.
fn file_of_notices(values: &Path) -> String {
    let rendered = template(&["--values", &values.display().to_string()]).unwrap();
    let mut documents = rendered.split("---\n").filter_map(|document| serde_saphyr::from_str::<Value>(document).ok());
    let found = documents
        .find(|document| document["kind"] == "ConfigMap" && document["metadata"]["name"] == "signoff-notifications");
    found.unwrap()["data"]["notifications.yaml"].as_str().unwrap().to_owned()
}

#[test]
fn the_operator_reads_the_file_of_notices_of_the_chart() {
    let config = Config::parse(&file_of_notices(&root().join("tests/contract/chart-values.yaml"))).unwrap();
    assert_eq!((config.channels.len(), config.routes.len(), config.allowed_addresses.len()), (5, 2, 1));
    assert_eq!(config.inbox.unwrap().as_str(), "https://inbox.example.com/", "it is the one that is named");
    let guide = std::fs::read_to_string(root().join("docs/guides/notices.md")).unwrap();
    let blocks = page::blocks(&guide);
    let examples = blocks.iter().filter(|block| block.language == "yaml" && block.text().starts_with("notifications:"));
    let mut channels = BTreeSet::new();
    for example in examples {
        let values = tempfile::NamedTempFile::new().unwrap();
        let with_page = "web: {enabled: true, url: https://signoff.example.com}\n";
        std::fs::write(values.path(), example.text() + with_page).unwrap();
        let config = Config::parse(&file_of_notices(values.path()));
        let config = config.unwrap_or_else(|why| panic!("{why}\n{}", example.text()));
        assert_eq!(config.inbox.unwrap().as_str(), "https://signoff.example.com/");
        channels.extend(config.channels.into_iter().map(|channel| channel.name));
    }
    assert!(channels.len() >= 5, "where are the examples? {channels:?}");
}

#[test]
fn the_operator_has_rights_on_notices_only_when_they_are_configured() {
    let rendered = template(&[]).unwrap();
    assert!(!rendered.contains("signoff-notices") && !rendered.contains("/etc/signoff"));
    let secret = "notifications.secrets[0].name=slack,notifications.secrets[0].mountPath=/etc/signoff/slack";
    let refusal = template(&["--set", secret]).unwrap_err();
    assert!(refusal.contains("choose another name, such as signoff-notifications-slack"), "{refusal}");
    let hook = "notifications.channels[0].name=hook,notifications.channels[0].webhook.urlFile=/etc/signoff/url,\
                notifications.channels[0].webhook.format=teams";
    let route = "notifications.routes[0].to[0]=hock";
    let refusal = template(&["--set", hook, "--set", route]).unwrap_err();
    assert!(refusal.contains("notifications.routes[0].to: there is no channel hock; there are: hook"), "{refusal}");
    let twice = hook.replace("[0]", "[1]");
    let refusal = template(&["--set", hook, "--set", &twice]).unwrap_err();
    assert!(refusal.contains("two channels have the name hook"), "{refusal}");
    let place = "notifications.secrets[0].name=signoff-notifications-slack,notifications.secrets[0].mountPath=/var/lib";
    let refusal = template(&["--set", place]).unwrap_err();
    assert!(refusal.contains("mountPath"), "{refusal}");
}

#[test]
fn enabled_alerts_name_metrics_of_notices() {
    let alerts = |arguments: &[&str]| {
        let rendered = template(arguments).unwrap();
        let mut documents =
            rendered.split("---\n").filter_map(|document| serde_saphyr::from_str::<Value>(document).ok());
        documents.find(|document| document["kind"] == "PrometheusRule")
    };
    assert_eq!(alerts(&[]), None);
    let made = alerts(&["--set", "alerts.enabled=true", "--set", "alerts.labels.release=prometheus"]).unwrap();
    assert_eq!(made["metadata"]["labels"]["release"], "prometheus");
    let rules = made["spec"]["groups"].as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap());
    let rules: Vec<&Value> = rules.collect();
    let metrics = ["notices_total", "notices_waiting", "notices_misconfigured", "guard_in_force", "leading"];
    for metric in metrics {
        let name = format!("signoff_{metric}");
        assert!(rules.iter().any(|rule| rule["expr"].as_str().unwrap().contains(&name)), "no alert is about {name}");
    }
    let told = rules.iter().filter_map(|rule| rule["annotations"]["summary"].as_str());
    assert_eq!(told.filter(|summary| summary.contains("hannel {{ $labels.channel }}")).count(), 2);
    assert!(template(&["--set", "alerts.enable=true"]).unwrap_err().contains("enable"));
}

#[test]
fn policies_of_the_chart_differ_only_in_the_identity() {
    let arguments =
        ["--namespace", "my-signoff-system", "--set", "serviceAccount.name=judge", "--api-versions", MUTATING];
    let rendered = template(&arguments).unwrap();
    for (name, text) in policies::files(&Identity::new("my-signoff-system", "judge")) {
        // helm names the source of each document before it.
        for document in text.split("\n---\n") {
            assert!(rendered.contains(document.trim_end()), "{name} is not in the chart as it is generated");
        }
    }
}

#[test]
fn mutating_policies_are_left_out_when_the_cluster_lacks_them() {
    assert!(!template(&[]).unwrap().contains("kind: MutatingAdmissionPolicy"));
    assert!(template(&["--api-versions", MUTATING]).unwrap().contains("kind: MutatingAdmissionPolicy"));
}

#[test]
fn crds_are_kept_on_uninstall_and_otherwise_as_generated() {
    let rendered = template(&[]).unwrap();
    let crds: Vec<_> =
        signoff_admission::files::generated().unwrap().into_iter().filter(|(path, _)| path.contains("/crd-")).collect();
    assert_eq!(crds.len(), 5);
    for (path, text) in crds {
        let kept =
            text.replacen("\nmetadata:\n", "\nmetadata:\n  annotations:\n    helm.sh/resource-policy: keep\n", 1);
        assert!(rendered.contains(kept.trim_end()), "{path} is not in the chart as it is generated");
    }
}

#[test]
fn no_aggregated_role_and_not_the_operator_can_decide() {
    let rendered =
        template(&["--set", "roles.aggregateRequester=true", "--set", "roles.delegate.people={alice}"]).unwrap();
    let roles = rendered.split("---\n").filter(|document| document.contains("\nkind: ClusterRole\n"));
    for role in roles {
        let operator = role.contains("  name: signoff-operator\n");
        let aggregated = role.contains("rbac.authorization.k8s.io/aggregate-to-");
        let rules = role.split_once("\nrules:").unwrap().1;
        for verb in ["approve", "delegate", "grant", "restore", "administer", "debug", "\"*\"", "'*'"] {
            let held = rules.lines().any(|line| line.contains("verbs") && line.contains(verb));
            assert!(!held || !(operator || aggregated), "{verb} is held by:\n{role}");
        }
    }
}

#[test]
fn blobs_can_be_read_only_by_name_and_by_no_aggregated_role() {
    let rendered = template(&["--set", "roles.aggregateRequester=true"]).unwrap();
    let roles: Vec<Value> =
        rendered.split("---\n").filter_map(|document| serde_saphyr::from_str(document).ok()).collect();
    let mut readers = Vec::new();
    for role in roles.iter().filter(|role| role["kind"] == "ClusterRole") {
        for rule in role["rules"].as_array().into_iter().flatten() {
            if rule["resources"].as_array().is_none_or(|all| !all.contains(&"blobs".into())) {
                continue;
            }
            let name = role["metadata"]["name"].as_str().unwrap_or_default();
            assert!(!role["metadata"]["labels"].to_string().contains("aggregate-to-"), "{name} is aggregated");
            let verbs = rule["verbs"].to_string();
            assert_eq!(verbs, if name == "signoff-operator" { r#"["get","create"]"# } else { r#"["get"]"# }, "{name}");
            readers.push(name);
        }
    }
    assert_eq!(readers, ["signoff-operator", "signoff-viewer", "signoff-approver"]);
}

#[test]
fn the_operator_can_create_workflows_in_its_own_namespace_only() {
    let arguments = ["--namespace", "my-signoff-system", "--set", "roles.aggregateRequester=true"];
    let rendered = template(&arguments).unwrap();
    let roles = rendered.split("---\n").filter_map(|document| serde_saphyr::from_str::<Value>(document).ok());
    let creates = |role: &Value| {
        let mut rules = role["rules"].as_array().into_iter().flatten();
        rules.any(|rule| {
            rule["resources"].to_string().contains("\"workflows\"") && rule["verbs"].to_string().contains("\"create\"")
        })
    };
    let creators: Vec<_> = roles.filter(creates).map(|role| (role["kind"].clone(), role["metadata"].clone())).collect();
    let name_of = |(kind, metadata): &(Value, Value)| format!("{kind} {} {}", metadata["name"], metadata["namespace"]);
    assert_eq!(
        creators.iter().map(name_of).collect::<Vec<_>>(),
        [
            r#""ClusterRole" "signoff-requester" null"#,
            r#""ClusterRole" "signoff-restorer" null"#,
            r#""Role" "signoff-operator" "my-signoff-system""#,
        ]
    );
}

/// Returns every `group/resource` and verb that a rendered chart grants to the operator's service account.
fn rights_of_the_operator(rendered: &str) -> BTreeSet<(String, String)> {
    let documents: Vec<Value> =
        rendered.split("---\n").filter_map(|document| serde_saphyr::from_str(document).ok()).collect();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().into_iter().flatten().map(text).collect::<Vec<_>>();
    let is_its = |binding: &&Value| {
        let subjects = binding["subjects"].as_array().into_iter().flatten();
        subjects.into_iter().any(|s| s["kind"] == "ServiceAccount" && s["name"] != "signoff-web")
    };
    let mut rights = BTreeSet::new();
    for binding in documents.iter().filter(is_its) {
        let role = documents.iter().find(|role| {
            role["kind"] == binding["roleRef"]["kind"]
                && role["metadata"]["name"] == binding["roleRef"]["name"]
                && (role["kind"] == "ClusterRole" || role["metadata"]["namespace"] == binding["metadata"]["namespace"])
        });
        for rule in role.unwrap()["rules"].as_array().unwrap() {
            for (group, resource) in list(&rule["apiGroups"])
                .iter()
                .flat_map(|group| list(&rule["resources"]).into_iter().map(move |resource| (group.clone(), resource)))
            {
                for verb in list(&rule["verbs"]) {
                    rights.insert((format!("{group}/{resource}"), verb));
                }
            }
        }
    }
    rights
}

/// The writes of the operator that another policy than `signoff-bound-token` refuses without its Pod.
const REFUSED_BY_THEIR_KIND: [(&str, &str, &str); 5] = [
    ("signoff-approvals", "signoff.dev/approvals", "CREATE"),
    ("signoff-blobs", "signoff.dev/blobs", "CREATE"),
    ("signoff-status", "signoff.dev/approvals/status", "UPDATE"),
    ("signoff-status", "signoff.dev/workflows/status", "UPDATE"),
    ("signoff-workflows", "signoff.dev/workflows", "CREATE"),
];

/// Returns a validating policy.
fn policy(name: &str) -> ValidatingAdmissionPolicySpec {
    let spec = policies::objects(&Identity::default()).unwrap().into_iter().find_map(|object| match object {
        PolicyObject::Validating(found) if found.metadata.name.as_deref() == Some(name) => found.spec,
        _ => None,
    });
    spec.unwrap()
}

/// Returns whether a validation of a policy refuses by itself the operator's name without a Pod, on every request or on
/// creates.
fn refuses_without_a_pod(name: &str) -> bool {
    let user = Identity::default().user_name();
    let bound = "has(request.userInfo.extra) && 'authentication.kubernetes.io/pod-name' in request.userInfo.extra";
    let operator = format!("variables.me == '{user}' && {bound}");
    let name_needs_a_pod = format!("variables.me != '{user}' || variables.operator");
    let spec = policy(name);
    let mut variables = spec.variables.iter().flatten();
    let is_defined = variables.any(|one| one.name == "operator" && one.expression == operator);
    spec.validations.iter().flatten().any(|validation| {
        let expression = validation.expression.as_str();
        expression == operator
            || expression == format!("!variables.create || ({operator})")
            || (expression == name_needs_a_pod && is_defined)
    })
}

/// Returns the writes that a validating policy matches, by resource and operation.
fn matched_writes(name: &str) -> BTreeSet<(String, String)> {
    let spec = policy(name);
    let mut matched = BTreeSet::new();
    for rule in spec.match_constraints.unwrap().resource_rules.unwrap() {
        let operations: Vec<String> = match rule.operations.unwrap() {
            all if all == ["*"] => ["CREATE", "UPDATE", "DELETE"].map(str::to_owned).to_vec(),
            some => some,
        };
        for (group, resource) in rule
            .api_groups
            .unwrap()
            .iter()
            .flat_map(|group| rule.resources.iter().flatten().map(move |resource| (group, resource)))
        {
            matched.extend(operations.iter().map(|operation| (format!("{group}/{resource}"), operation.clone())));
        }
    }
    matched
}

#[test]
fn every_write_of_the_operator_needs_a_token_bound_to_its_pod() {
    let values = root().join("tests/contract/chart-values.yaml");
    let mut written = BTreeSet::new();
    for arguments in [vec![], vec!["--values", values.to_str().unwrap()]] {
        for (resource, verb) in rights_of_the_operator(&template(&arguments).unwrap()) {
            let operation = match verb.as_str() {
                "get" | "list" | "watch" => continue,
                "create" => "CREATE",
                "update" | "patch" => "UPDATE",
                "delete" | "deletecollection" => "DELETE",
                other => panic!("no policy can bound the verb {other} on {resource}"),
            };
            written.insert((resource, operation.to_owned()));
        }
    }
    let bound = matched_writes("signoff-bound-token");
    let mut refused = bound.clone();
    for (policy, resource, operation) in REFUSED_BY_THEIR_KIND {
        let write = (resource.to_owned(), operation.to_owned());
        let matched = matched_writes(policy);
        assert!(matched.contains(&write), "{policy} does not match {write:?}: {matched:?}");
        assert!(refuses_without_a_pod(policy), "{policy} does not refuse the operator's name without a Pod");
        assert!(written.contains(&write) && refused.insert(write), "{policy}: {resource} {operation}");
    }
    assert!(written.len() >= 12 && written.iter().any(|(resource, _)| resource == "/pods"), "{written:?}");
    let missing: Vec<_> = written.difference(&refused).collect();
    assert!(missing.is_empty(), "the operator may write this without a token bound to its Pod: {missing:?}");
    // The policy of Workflows has the rest for a Workflow.
    for (resource, _) in bound.iter().filter(|(resource, _)| resource != "signoff.dev/workflows") {
        for operation in ["CREATE", "UPDATE", "DELETE"] {
            assert!(bound.contains(&(resource.clone(), operation.to_owned())), "{operation} of {resource}");
        }
    }
    let resources = |writes: &BTreeSet<(String, String)>| -> BTreeSet<String> {
        writes.iter().map(|(resource, _)| resource.clone()).collect()
    };
    assert!(resources(&bound).is_subset(&resources(&written)), "{bound:?} has more than the roles: {written:?}");
}

#[test]
fn an_unknown_or_invalid_value_is_refused_by_name() {
    for (value, words) in [
        ("operator.enable=false", "enable"),
        ("args.defaultGateTimeout=tomorrow", "/args/defaultGateTimeout"),
        ("serviceAccount.name=Not_A_Name", "/serviceAccount/name"),
        ("args.logFormat=xml", "/args/logFormat"),
    ] {
        let refusal = template(&["--set", value]).unwrap_err();
        assert!(refusal.contains(words), "{value}: {refusal}");
    }
}
