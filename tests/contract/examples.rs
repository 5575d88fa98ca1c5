//! The examples: every file is a Workflow that can be run, or a policy that does what its comment says, and the index
//! names every file. The cluster tests check that a real API server accepts the examples.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use kube::ResourceExt;
use serde_json::Value;
use signoff_api::{ApprovalRequest, ClusterApprovalPolicy, Workflow, gate::TimeoutAction};
use signoff_engine::{Blobs, Command, Control, Journal, Now, Plan, Policies, Settings, advance};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples")
}

/// Returns every Workflow with its path below the folder.
fn examples() -> Vec<(String, String)> {
    files().into_iter().filter(|(name, _)| !name.starts_with("policies/")).collect()
}

/// Returns every policy with its path below the folder.
fn policies() -> Vec<(String, String)> {
    files().into_iter().filter(|(name, _)| name.starts_with("policies/")).collect()
}

/// Returns every file with its path below the folder.
fn files() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![folder()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(folder()).unwrap().display().to_string();
            match path.extension().and_then(|end| end.to_str()) {
                // People's answers in an example are read where the examples are run.
                Some("yaml") if name.ends_with(".answers.yaml") => {}
                Some("yaml") => found.push((name, std::fs::read_to_string(&path).unwrap())),
                None if path.is_dir() => folders.push(path),
                _ => assert_eq!(name, "README.md", "an example is a .yaml file"),
            }
        }
    }
    found.sort();
    found
}

/// The schema of a Workflow, as the API server uses it.
static SCHEMA: LazyLock<Value> = LazyLock::new(|| schema("Workflow"));

fn schema(kind: &str) -> Value {
    let crds = signoff_api::crds::all();
    let crd = crds.iter().find(|crd| crd.spec.names.kind == kind).unwrap();
    serde_json::to_value(crd.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap()).unwrap()
}

/// Returns the settings of a local run, in which an example may start a command.
fn settings() -> Settings {
    Settings { allow_commands: true, ..Settings::default() }
}

/// Collects the paths of fields that the schema does not have, which an API server would drop.
fn collect_unknown_fields(value: &Value, schema: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, inner) in fields {
                let path = format!("{path}.{name}");
                match (schema["properties"].get(name), schema.get("additionalProperties")) {
                    (Some(known), _) => collect_unknown_fields(inner, known, &path, found),
                    (None, Some(any)) => collect_unknown_fields(inner, any, &path, found),
                    _ if schema["x-kubernetes-preserve-unknown-fields"] == true => {}
                    _ if path.starts_with(".metadata.")
                        || [".apiVersion", ".kind", ".metadata"].contains(&path.as_str()) => {}
                    _ => found.push(path),
                }
            }
        }
        // A value of any type has no schema for its items either.
        Value::Array(items) if schema.get("items").is_some() => {
            for (at, item) in items.iter().enumerate() {
                collect_unknown_fields(item, &schema["items"], &format!("{path}[{at}]"), found);
            }
        }
        _ => {}
    }
}

/// Returns the Workflow in a file with a requester, as the API server would set it.
pub(crate) fn parse(name: &str, text: &str) -> Workflow {
    let mut value: Value = serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut found = Vec::new();
    collect_unknown_fields(&value, &SCHEMA, "", &mut found);
    assert_eq!(found, [] as [String; 0], "{name}: no such fields");
    assert_eq!(value["apiVersion"], "signoff.dev/v1alpha1", "{name}");
    assert_eq!(value["kind"], "Workflow", "{name}");
    assert!(value["spec"].get("requestedBy").is_none(), "{name}: who asks is stamped, not typed");
    value["spec"]["requestedBy"] = "dana@example.com".into();
    serde_json::from_value(value).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn every_example_can_be_run_as_it_stands() {
    let examples = examples();
    assert!(examples.len() >= 40, "{} examples: where are they?", examples.len());
    for (name, text) in examples {
        if let Err(complaints) = Plan::of(&parse(&name, &text), &settings(), &Arc::default()) {
            let complaints: Vec<_> = complaints.iter().map(ToString::to_string).collect();
            panic!("{name}:\n{}", complaints.join("\n"));
        }
    }
}

#[test]
fn a_field_that_does_not_exist_is_found() {
    let text = "apiVersion: signoff.dev/v1alpha1\nkind: Workflow\nmetadata: {name: x}\n\
                spec: {steps: [{name: a, set: {value: x, valeu: y}, vars: {any: x}}]}";
    let value = serde_saphyr::from_str(text).unwrap();
    let mut found = Vec::new();
    collect_unknown_fields(&value, &SCHEMA, "", &mut found);
    assert_eq!(found, [".spec.steps[0].set.valeu"]);
}

#[test]
fn only_questionable_examples_have_warnings() {
    for (name, text) in examples() {
        let plan = Plan::of(&parse(&name, &text), &settings(), &Arc::default()).unwrap();
        // Two graphs end where no edge is chosen, and an approved tag may become another image.
        let graphs = ["graph/routed-by-option.yaml", "graph/routed-by-reject.yaml"];
        let warned = [&graphs[..], &["gates/timeout-goes-on.yaml", "pods/exact-command.yaml"]].concat();
        let expected = usize::from(warned.contains(&name.as_str()));
        assert_eq!(plan.warnings().len(), expected, "{name}: {:?}", plan.warnings());
        let told: Vec<_> = signoff_manifest::check(&text, &settings()).into_iter().flat_map(|it| it.problems).collect();
        assert!(!told.iter().any(|problem| problem.reason == "KubectlRefuses"), "{name}: {told:?}");
    }
}

#[test]
fn all_examples_can_be_applied_to_one_namespace() {
    let mut names = BTreeSet::new();
    for (file, text) in examples() {
        assert!(names.insert(parse(&file, &text).name_any()), "{file}: another example has the same name");
    }
}

/// Returns an example's policy, as it applies in a namespace with this label.
fn policy(file: &str, label: (&str, &str)) -> Policies {
    let (name, text) = policies().into_iter().find(|(name, _)| name == file).unwrap();
    let value: Value = serde_saphyr::from_str(&text).unwrap();
    let mut found = Vec::new();
    collect_unknown_fields(&value, &schema("ClusterApprovalPolicy"), "", &mut found);
    assert_eq!(found, [] as [String; 0], "{name}: no such fields");
    let policy: ClusterApprovalPolicy = serde_json::from_value(value).unwrap_or_else(|error| panic!("{name}: {error}"));
    let labels = BTreeMap::from([(label.0.to_owned(), label.1.to_owned())]);
    Policies::of(&labels, [(policy.name_any().as_str(), &policy.spec)], [])
}

/// Returns the request of the first gate of an example under policies.
fn first_request(file: &str, policies: Policies) -> ApprovalRequest {
    let (name, text) = examples().into_iter().find(|(name, _)| name == file).unwrap();
    let plan = Plan::of(&parse(&name, &text), &Settings::default(), &Arc::new(policies));
    let plan = plan.unwrap_or_else(|why| panic!("{name}: {why:?}"));
    let now = Now::new(jiff::Timestamp::UNIX_EPOCH.into(), "epoch");
    let turn = advance(&plan, Control::default(), Journal::default(), Vec::new(), &Blobs::new(), &now);
    let ask = turn.commands.into_iter().find_map(|command| match command {
        Command::Ask(ask) => Some(ask.request),
        Command::Call(_) => None,
    });
    ask.unwrap_or_else(|| panic!("{name} asks nobody at first"))
}

#[test]
fn every_example_policy_applies_in_its_namespaces() {
    assert_eq!(policies().len(), 5);
    let quorum = "gates/quorum.yaml";
    for (file, _) in policies() {
        assert_eq!(first_request(quorum, policy(&file, ("env", "harness"))).required_by.len(), 0, "{file}");
    }
    let goes_on = first_request("gates/timeout-goes-on.yaml", policy("policies/dev.yaml", ("env", "dev")));
    assert_eq!(goes_on.timeout.action, Some(TimeoutAction::Retry));
    assert_eq!(goes_on.threshold(), 1);

    let prod = first_request(quorum, policy("policies/prod.yaml", ("env", "prod")));
    assert_eq!((prod.threshold(), prod.bars_requester(), prod.quorums.len()), (2, true, 2));
    assert_eq!(prod.required_by[0].rules.len(), 5, "{:?}", prod.required_by);

    let regulated = policy("policies/regulated.yaml", ("regulated", "yes"));
    let gate = first_request(quorum, regulated.clone());
    assert_eq!(gate.persons.len(), 2);
    let (name, text) = examples().into_iter().find(|(name, _)| name == "quickstart/workflow.yaml").unwrap();
    let plan = Plan::of(&parse(&name, &text), &Settings::default(), &Arc::new(regulated)).unwrap();
    assert_eq!(plan.added_steps().len(), 1);

    let agents = Arc::new(policy("policies/agents.yaml", ("agents", "yes")));
    let (name, text) = examples().into_iter().find(|(name, _)| name == "tools/refund.yaml").unwrap();
    assert_eq!(Plan::of(&parse(&name, &text), &Settings::default(), &agents).unwrap().added_steps().len(), 1);
}

#[test]
fn the_policy_for_servers_asks_before_each_server_and_allows_one_host() {
    let servers = Arc::new(policy("policies/servers.yaml", ("servers", "yes")));
    let text = |file: &str| examples().into_iter().find(|(name, _)| name == file).unwrap().1;
    let plan = |text: &str| Plan::of(&parse("servers", text), &Settings::default(), &servers);
    for file in ["servers/server-tools.yaml", "servers/pins.yaml", "servers/without-a-model.yaml"] {
        assert_eq!(plan(&text(file)).unwrap().added_steps().len(), 1, "{file}");
    }
    let elsewhere = text("servers/server-tools.yaml").replace("crm.example.com", "crm.example.net");
    let refused = plan(&elsewhere).unwrap_err();
    assert!(refused.iter().any(|error| error.to_string().contains("spec.servers[0].url")), "{refused:?}");
}

#[test]
fn every_example_policy_lists_its_requirements_and_commands() {
    for (name, text) in policies() {
        let header: Vec<_> = text.lines().take_while(|line| line.starts_with('#')).collect();
        let typed = format!("kubectl apply -f examples/{name}");
        assert!(header.iter().any(|line| line.contains(&typed)), "{name}: its comment has the line `{typed}`");
    }
}

#[test]
fn every_example_begins_with_its_purpose_and_command() {
    for (name, text) in examples() {
        let header: Vec<_> = text.lines().take_while(|line| line.starts_with('#')).collect();
        assert!(header.len() >= 3, "{name} begins with a comment on what it shows");
        let typed = format!("kubectl apply -f examples/{name}");
        assert!(header.iter().any(|line| line.contains(&typed)), "{name}: its comment has the line `{typed}`");
        let file = Path::new(&name).file_stem().unwrap().to_str().unwrap();
        let named = name == "quickstart/workflow.yaml" || text.contains(&format!("\n  name: {file}\n"));
        assert!(named, "{name}: its Workflow is called {file}");
    }
}

#[test]
fn every_example_is_run_by_some_suite() {
    let by_answers: BTreeSet<_> = crate::story::examples().into_iter().map(|example| example.name).collect();
    let tests = |suite: &str| {
        let sources = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(suite)).unwrap();
        let sources = sources.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
        sources.map(|path| std::fs::read_to_string(path).unwrap()).collect::<String>()
    };
    let (cluster, pods) = (tests("cluster") + &tests("src"), tests("pods"));
    let named_in = |suite: &str, name: &str| [".yaml", "\""].iter().any(|end| suite.contains(&format!("{name}{end}")));
    for (file, text) in examples() {
        let name = file.strip_suffix(".yaml").unwrap();
        // Without a kubelet no container runs, and none of the other examples needs one.
        let plan = Plan::of(&parse(&file, &text), &settings(), &Arc::default()).unwrap();
        let runs = if plan.containers().next().is_some() {
            named_in(&pods, name)
        } else {
            by_answers.contains(name) || name.starts_with(crate::models::FOLDER) || named_in(&cluster, name)
        };
        assert!(runs, "{name}: no test runs it");
    }
}

#[test]
fn the_index_names_every_example_and_nothing_else() {
    let index = std::fs::read_to_string(folder().join("README.md")).unwrap();
    let linked: Vec<_> =
        index.split("](").skip(1).filter_map(|rest| rest.split(')').next()).map(str::to_owned).collect();
    let named: BTreeSet<_> = linked.iter().cloned().collect();
    assert_eq!(named.len(), linked.len(), "the index names an example twice");
    assert_eq!(named, files().into_iter().map(|(name, _)| name).collect());
}
