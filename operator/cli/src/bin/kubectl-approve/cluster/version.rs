//! `version`: the versions of this plugin, the operator and the API server.
//!
//! **Invariant:** a version that cannot be read does not fail the command: its line gives the reason.

use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api,
    api::{ListParams, ObjectMeta},
};
use serde_json::{Value, json};
use signoff_admission::{installed_for, policies::Identity};
use signoff_cli::sanitize::one_line;

use super::client::Session;
use crate::{error::Failure, output::FactsArgs};

/// The label in which Helm charts write their version.
const VERSION_LABEL: &str = "app.kubernetes.io/version";
/// Selects the Deployment of the operator.
const OPERATOR_SELECTOR: &str = "app.kubernetes.io/name=signoff,app.kubernetes.io/component=operator";

/// Fetches all versions and returns them, a line each or as facts.
///
/// # Errors
/// The facts cannot be serialized.
pub async fn version(session: &Session, output: FactsArgs) -> Result<String, Failure> {
    let (operator, server) = tokio::join!(find_deployments(session), fetch_server_version(session));
    let client = env!("CARGO_PKG_VERSION");
    Ok(output.render(&facts(client, &operator, &server))?.unwrap_or_else(|| render_page(client, &operator, &server)))
}

/// Returns `{client, operator, kubernetes}`, each with a version, or with the problem that it cannot be read.
fn facts(client: &str, operator: &Result<Vec<Installed>, String>, server: &Result<String, String>) -> Value {
    let operator = match operator {
        Ok(all) => {
            let deployment = |found: &Installed| json!({"version": found.version, "images": found.images});
            json!({"deployments": all.iter().map(deployment).collect::<Vec<_>>()})
        }
        Err(problem) => json!({"problem": problem}),
    };
    let server = match server {
        Ok(version) => json!({"version": version}),
        Err(problem) => json!({"problem": problem}),
    };
    json!({"client": {"version": client}, "operator": operator, "kubernetes": server})
}

/// A Deployment of the operator.
struct Installed {
    version: String,
    images: Vec<String>,
}

fn render_page(client: &str, operator: &Result<Vec<Installed>, String>, server: &Result<String, String>) -> String {
    let describe = |found: &Installed| format!("{} ({})", found.version, one_line(&found.images.join(", "), 300));
    let operator = match operator {
        Ok(all) => &all.iter().map(describe).collect::<Vec<_>>().join(", "),
        Err(problem) => problem,
    };
    let (Ok(server) | Err(server)) = server;
    let lines = [("Client:", client), ("Operator:", operator.as_str()), ("Kubernetes:", server.as_str())];
    lines.iter().map(|(label, text)| format!("{label:<14}{text}\n")).collect()
}

/// Returns the Deployments of the operator, at least one, or why there is none.
async fn find_deployments(session: &Session) -> Result<Vec<Installed>, String> {
    let installed = installed_for(session.raw()).await.ok().flatten().unwrap_or_else(Identity::default);
    let namespace = one_line(&installed.namespace, 63);
    let api = Api::<Deployment>::namespaced(session.raw().clone(), &installed.namespace);
    match api.list(&ListParams::default().labels(OPERATOR_SELECTOR)).await {
        Ok(found) => {
            let read_deployment = |deployment: &Deployment| {
                let containers = deployment.spec.iter().filter_map(|spec| spec.template.spec.as_ref());
                let images =
                    containers.flat_map(|pod| &pod.containers).filter_map(|container| container.image.as_deref());
                let images = images.map(|image| one_line(image, 300)).collect();
                Installed { version: version_label(&deployment.metadata), images }
            };
            let deployments: Vec<_> = found.items.iter().map(read_deployment).collect();
            if deployments.is_empty() {
                Err(format!("no Deployment in namespace {namespace}"))
            } else {
                Ok(deployments)
            }
        }
        Err(error) => Err(match session.explain(error) {
            Failure::Refused(_) => format!("not readable: you may not list deployments in namespace {namespace}"),
            other => other.to_string(),
        }),
    }
}

async fn fetch_server_version(session: &Session) -> Result<String, String> {
    match session.raw().apiserver_version().await {
        Ok(info) => Ok(one_line(&info.git_version, 63)),
        Err(error) => Err(session.explain(error).to_string()),
    }
}

fn version_label(metadata: &ObjectMeta) -> String {
    let version = metadata.labels.as_ref().and_then(|labels| labels.get(VERSION_LABEL));
    version.map_or_else(|| "without a version".to_owned(), |version| one_line(version, 63))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn each_version_has_a_line() {
        let operator = Ok(vec![Installed { version: "0.1.0".into(), images: vec!["signoff:0.1.0".into()] }]);
        let server = Ok("v1.36.1".to_owned());
        assert_eq!(
            render_page("0.1.0", &operator, &server),
            "Client:       0.1.0\nOperator:     0.1.0 (signoff:0.1.0)\nKubernetes:   v1.36.1\n"
        );
        let expected = json!({
            "client": {"version": "0.1.0"},
            "operator": {"deployments": [{"version": "0.1.0", "images": ["signoff:0.1.0"]}]},
            "kubernetes": {"version": "v1.36.1"},
        });
        assert_eq!(facts("0.1.0", &operator, &server), expected);
        let unread = facts("0.1.0", &Err("not readable".into()), &server);
        assert_eq!(unread["operator"], json!({"problem": "not readable"}));
    }

    #[test]
    fn the_version_is_read_from_the_label() {
        let labels = BTreeMap::from([(VERSION_LABEL.to_owned(), "0.2.0\u{1b}[31m".to_owned())]);
        assert_eq!(version_label(&ObjectMeta { labels: Some(labels), ..ObjectMeta::default() }), "0.2.0[31m");
        assert_eq!(version_label(&ObjectMeta::default()), "without a version");
    }
}
