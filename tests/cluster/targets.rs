//! Addresses that runs must not call: nodes, the API server, and the operator's own neighbors, as the cluster lists
//! them at that moment. Only this machine is called; other addresses are only refused.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use signoff_tests::control_plane::{Cluster, Namespace, OPERATOR_NAMESPACE, OperatorOptions, OperatorProcess};

/// A service on every loopback address of this machine, which counts its requests.
struct Service {
    port: u16,
    asked: Arc<Mutex<u32>>,
}

impl Service {
    async fn start() -> Self {
        let asked = Arc::new(Mutex::new(0));
        let listener = tokio::net::TcpListener::bind("0.0.0.0:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        async fn answer(State(asked): State<Arc<Mutex<u32>>>) -> &'static str {
            *asked.lock().unwrap() += 1;
            "the inside"
        }
        let app = Router::new().fallback(answer).with_state(Arc::clone(&asked));
        tokio::spawn(async { axum::serve(listener, app).await });
        Self { port, asked }
    }

    fn request_count(&self) -> u32 {
        *self.asked.lock().unwrap()
    }
}

/// Runs that call addresses, in a namespace of their own.
struct Runs<'a> {
    cluster: &'a Cluster,
    namespace: Namespace,
}

impl Runs<'_> {
    /// Runs one GET, and returns the response or the step's error.
    async fn get(&self, url: &str) -> Result<String, String> {
        let http = json!({"method": "GET", "url": url});
        let workflow = json!({
            "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"generateName": "call-"},
            "spec": {"requestedBy": "", "steps": [{"name": "call", "timeout": "2s", "http": http}]},
        });
        let namespace = ["--namespace", &self.namespace.name];
        let words = [&["create", "--filename", "-", "--output", "jsonpath={.metadata.name}"][..], &namespace].concat();
        let name =
            self.cluster.kubectl(words).person("dana").input(workflow.to_string()).run().await.unwrap().ok().unwrap();
        let name = format!("workflow/{}", name.trim());
        let words = [&["wait", "--for=condition=Finished", &name, "--timeout=60s"][..], &namespace].concat();
        self.cluster.kubectl(words).run().await.unwrap().ok().unwrap();
        let words = [&["get", &name, "--output=json"][..], &namespace].concat();
        let run: Value = serde_json::from_str(&self.cluster.kubectl(words).run().await.unwrap().ok().unwrap()).unwrap();
        let step = &run["status"]["steps"][0];
        match step["phase"].as_str() {
            Some("Succeeded") => Ok(step["response"].as_str().unwrap_or_default().to_owned()),
            _ => Err(run["status"]["message"].as_str().unwrap_or_default().to_owned()),
        }
    }

    /// Repeats the GET until the operator applies a change: no event tells when.
    async fn until(&self, url: &str, done: impl Fn(&Result<String, String>) -> bool) -> Result<String, String> {
        for _ in 0..50 {
            let answer = self.get(url).await;
            if done(&answer) {
                return answer;
            }
        }
        panic!("{url} never came to what it should: {:?}", self.get(url).await);
    }

    #[track_caller]
    fn assert_refused(answer: Result<String, String>, what: &str) {
        let error = answer.expect_err("the call was made");
        assert!(error.contains(&format!("is {what}")) && error.contains("--allow-address"), "{error}");
    }
}

async fn apply(cluster: &Cluster, object: Value) {
    cluster.kubectl(["create", "--filename", "-"]).input(object.to_string()).run().await.unwrap().ok().unwrap();
}

/// Starts an operator without a Lease, because its targets do not depend on one, and a busy machine might not renew it.
async fn start_operator(cluster: &Cluster, arguments: &[&str]) -> OperatorProcess {
    let arguments = ["--no-lease"].iter().chain(arguments).map(|&argument| argument.to_owned()).collect();
    OperatorProcess::start(cluster, OperatorOptions { arguments, ..OperatorOptions::default() }).await.unwrap()
}

#[tokio::test]
async fn a_run_reaches_neither_nodes_nor_the_api_server_nor_the_operators_neighbours() {
    let cluster = Cluster::own().await.unwrap();
    cluster.install(&[]).await.unwrap();
    let service = Service::start().await;
    let at = |address: &str| format!("http://{address}:{}/", service.port);
    let first = start_operator(&cluster, &["--allow-address", "127.0.0.0/8"]).await;
    let runs = Runs { cluster: &cluster, namespace: cluster.namespace("targets").await.unwrap() };

    // All targets are addresses of this machine in an allowed range; one of them becomes the address of a node.
    assert_eq!(runs.get(&at("127.0.0.2")).await.unwrap(), "the inside");
    assert_eq!(runs.get(&at("127.0.0.6")).await.unwrap(), "the inside");
    let nodes: Api<Node> = Api::all(cluster.admin().await.unwrap());
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-2"}});
    nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    let addresses = json!({"status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.2"}, {"type": "Hostname", "address": "node-2"}]}});
    nodes.patch_status("node-2", &PatchParams::default(), &Patch::Merge(addresses)).await.unwrap();
    let refused = runs.until(&at("127.0.0.2"), Result::is_err).await;
    Runs::assert_refused(refused, "a node of the cluster");
    let asked = service.request_count();
    for spelling in ["127.0.0.2", "127.2", "0x7f.0.0.2", "2130706434"] {
        Runs::assert_refused(runs.get(&at(spelling)).await, "a node of the cluster");
    }
    assert_eq!(service.request_count(), asked, "nothing arrived");
    assert_eq!(runs.get(&at("127.0.0.6")).await.unwrap(), "the inside");

    // The API server: at the operator's own address for it, and at the address in the cluster.
    Runs::assert_refused(runs.get(&at("127.0.0.1")).await, "the API server");
    let kubernetes = cluster.kubectl(["get", "service", "kubernetes", "--output", "jsonpath={.spec.clusterIP}"]);
    let kubernetes = kubernetes.run().await.unwrap().ok().unwrap();
    Runs::assert_refused(runs.get(&format!("https://{}/", kubernetes.trim())).await, "the Service of the API server");

    // The next targets are objects in the operator's namespace.
    apply(
        &cluster,
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "neighbour", "namespace": OPERATOR_NAMESPACE},
            "spec": {"ports": [{"port": 80}]},
        }),
    )
    .await;
    let words =
        ["get", "service", "neighbour", "--namespace", OPERATOR_NAMESPACE, "--output", "jsonpath={.spec.clusterIP}"];
    let neighbour = cluster.kubectl(words).run().await.unwrap().ok().unwrap();
    let own = "a Service of the operator's own namespace";
    let url = format!("http://{}/", neighbour.trim());
    Runs::assert_refused(runs.until(&url, |answer| answer.as_ref().is_err_and(|error| error.contains(own))).await, own);
    apply(&cluster, json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "neighbour-1", "namespace": OPERATOR_NAMESPACE, "labels": {"kubernetes.io/service-name": "neighbour"}},
        "endpoints": [{"addresses": ["10.99.0.9"], "conditions": {"ready": false}}], "ports": [{"port": 80}],
    }))
    .await;
    let pod = "a pod of the operator's own namespace";
    let refused =
        runs.until("http://10.99.0.9/", |answer| answer.as_ref().is_err_and(|error| error.contains(pod))).await;
    Runs::assert_refused(refused, pod);
    // Another private address is tried.
    let tried = runs.get("http://10.99.0.10/").await.unwrap_err();
    assert!(!tried.contains("--allow-address"), "{tried}");

    // The address of a deleted node is an ordinary one.
    nodes.delete("node-2", &DeleteParams::default()).await.unwrap();
    assert_eq!(runs.until(&at("127.0.0.2"), Result::is_ok).await.unwrap(), "the inside");
    first.stop().await.unwrap();

    // An operator that cannot list nodes blocks every private address, and reports why.
    let words = ["get", "clusterrole", "signoff-operator", "--output=json"];
    let mut role: Value = serde_json::from_str(&cluster.kubectl(words).run().await.unwrap().ok().unwrap()).unwrap();
    role["rules"].as_array_mut().unwrap().retain(|rule| rule["resources"] != json!(["nodes"]));
    let replaced = cluster.kubectl(["replace", "--filename", "-"]).input(role.to_string()).run().await.unwrap();
    replaced.ok().unwrap();
    let who = format!("system:serviceaccount:{OPERATOR_NAMESPACE}:signoff-operator");
    let may = ["auth", "can-i", "list", "nodes", "--as", &who];
    while cluster.kubectl(may).run().await.unwrap().code == 0 {}
    let second = start_operator(&cluster, &["--allow-address", "127.0.0.0/8", "--allow-address", "10.99.0.11"]).await;
    let unknown =
        tokio::time::timeout(Duration::from_secs(60), runs.get("http://10.99.0.10/")).await.unwrap().unwrap_err();
    assert!(
        unknown.contains("may be a node of the cluster, which the operator cannot find out (nodes is forbidden"),
        "{unknown}"
    );
    let named = runs.get("http://10.99.0.11/").await.unwrap_err();
    assert!(!named.contains("--allow-address"), "{named}");
    assert_eq!(runs.get(&at("127.0.0.6")).await.unwrap(), "the inside");
    assert!(
        std::fs::read_to_string(second.log())
            .unwrap()
            .contains("whether an address is a node of the cluster cannot be told")
    );
    assert!(second.get("/metrics").await.unwrap().contains(r#"signoff_watch_failures_total{kind="Node"}"#));
    second.stop().await.unwrap();
}
