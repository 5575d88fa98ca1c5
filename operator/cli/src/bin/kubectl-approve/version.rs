//! `version`: this plugin, the operator and the API server.
//!
//! It must not fail where one of them cannot be read: the line says so.

use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api,
    api::{ListParams, ObjectMeta},
};
use signoff_admission::{installed_for, policies::Identity};

use crate::{client::Session, error::Failure, sanitize::one_line};

/// The label in which Helm charts write their version.
const LABEL: &str = "app.kubernetes.io/version";
/// Selects the Deployment of the operator.
const OPERATOR: &str = "app.kubernetes.io/name=signoff,app.kubernetes.io/component=operator";

/// Asks for all versions and returns them by lines.
pub async fn version(session: &Session) -> String {
    let (operator, server) = tokio::join!(operator(session), server(session));
    page(env!("CARGO_PKG_VERSION"), &operator, &server)
}

fn page(client: &str, operator: &str, server: &str) -> String {
    let lines = [("Client:", client), ("Operator:", operator), ("Kubernetes:", server)];
    lines.iter().map(|(label, text)| format!("{label:<14}{text}\n")).collect()
}

async fn operator(session: &Session) -> String {
    let installed = installed_for(session.raw()).await.ok().flatten().unwrap_or_else(Identity::default);
    let namespace = one_line(&installed.namespace, 63);
    let deployments = Api::<Deployment>::namespaced(session.raw().clone(), &installed.namespace);
    match deployments.list(&ListParams::default().labels(OPERATOR)).await {
        Ok(found) => {
            let described = |deployment: &Deployment| {
                let containers = deployment.spec.iter().filter_map(|spec| spec.template.spec.as_ref());
                let images =
                    containers.flat_map(|pod| &pod.containers).filter_map(|container| container.image.as_deref());
                format!(
                    "{} ({})",
                    labelled(&deployment.metadata),
                    one_line(&images.collect::<Vec<_>>().join(", "), 300)
                )
            };
            let all: Vec<_> = found.items.iter().map(described).collect();
            if all.is_empty() { format!("no Deployment in namespace {namespace}") } else { all.join(", ") }
        }
        Err(error) => match session.explain(error) {
            Failure::Refused(_) => format!("not readable: you may not list deployments in namespace {namespace}"),
            other => other.to_string(),
        },
    }
}

async fn server(session: &Session) -> String {
    match session.raw().apiserver_version().await {
        Ok(info) => one_line(&info.git_version, 63),
        Err(error) => session.explain(error).to_string(),
    }
}

fn labelled(metadata: &ObjectMeta) -> String {
    let version = metadata.labels.as_ref().and_then(|labels| labels.get(LABEL));
    version.map_or_else(|| "without a version".to_owned(), |version| one_line(version, 63))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn each_version_has_a_line() {
        assert_eq!(
            page("0.1.0", "0.1.0 (signoff:0.1.0)", "v1.36.1"),
            "Client:       0.1.0\nOperator:     0.1.0 (signoff:0.1.0)\nKubernetes:   v1.36.1\n"
        );
    }

    #[test]
    fn a_version_is_that_of_the_label() {
        let labels = BTreeMap::from([(LABEL.to_owned(), "0.2.0\u{1b}[31m".to_owned())]);
        assert_eq!(labelled(&ObjectMeta { labels: Some(labels), ..ObjectMeta::default() }), "0.2.0[31m");
        assert_eq!(labelled(&ObjectMeta::default()), "without a version");
    }
}
