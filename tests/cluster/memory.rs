//! The operator with the memory limit of the chart, beside namespaces that use as much as they can: models whose
//! answers have the largest length and do not end, and long bodies.

use std::{convert::Infallible, net::Ipv4Addr, sync::Arc};

use axum::{
    Router,
    body::Body,
    extract::State,
    response::Response,
    routing::{get, post},
};
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use signoff_api::Workflow;
use signoff_tests::{
    control_plane::{Cluster, Namespace, OperatorOptions, OperatorProcess},
    memory_group::{LIMIT, MemoryGroup},
};
use std::time::Duration;

use tokio::{net::TcpListener, sync::watch, time::timeout};

use crate::{policies::harness::workflow, runs::Runs};

const TIMEOUT: Duration = Duration::from_secs(60);
const BRANCHES: usize = 16;
/// The bytes of an answer before it hangs.
const BEGINNING: usize = 7 << 20;

/// A server of models whose answers hang, and of long bodies.
struct Server {
    url: String,
    /// The number of answers that have begun, and of those that have been sent up to the point where they hang.
    begun: watch::Receiver<(usize, usize)>,
    released: watch::Sender<bool>,
}

#[derive(Clone)]
struct Shared {
    begun: Arc<watch::Sender<(usize, usize)>>,
    released: watch::Receiver<bool>,
}

/// Answers with a text of eight MiB, whose last MiB is sent when the test releases it.
async fn turn(State(shared): State<Shared>) -> Response {
    shared.begun.send_modify(|(begun, _)| *begun += 1);
    let piece = Bytes::from(vec![b'x'; 64 * 1024]);
    let head = Bytes::from_static(br#"{"choices":[{"finish_reason":"stop","message":{"content":""#);
    let texts = vec![piece; BEGINNING / (64 * 1024)];
    let end = async move {
        shared.begun.send_modify(|(_, sent)| *sent += 1);
        let mut released = shared.released;
        let _ = released.wait_for(|released| *released).await;
        Bytes::from_static(br#""}}]}"#)
    };
    let all = stream::iter([head]).chain(stream::iter(texts)).chain(stream::once(end));
    Response::new(Body::from_stream(all.map(Ok::<_, Infallible>)))
}

impl Server {
    async fn start() -> Self {
        let (count, begun) = watch::channel((0, 0));
        let (released, is_released) = watch::channel(false);
        let shared = Shared { begun: Arc::new(count), released: is_released };
        let body = || async { "y".repeat(900 * 1000) };
        let app = Router::new().route("/v1/chat/completions", post(turn)).route("/body", get(body)).with_state(shared);
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await.unwrap();
        // The API server is at 127.0.0.1, which runs must not call.
        let url = format!("http://127.0.0.6:{}", listener.local_addr().unwrap().port());
        tokio::spawn(async { axum::serve(listener, app).await });
        Self { url, begun, released }
    }

    /// Returns as many concurrent turns as a Workflow can have, of an agent with a tool.
    fn turns(&self) -> Value {
        let step = |n: usize| json!({"name": "ask", "branch": format!("b{n}"), "timeout": "5m", "agent": {"name": "clerk", "input": "Go."}});
        let mut steps: Vec<Value> = (0..BRANCHES).map(step).collect();
        steps.push(json!({"name": "note", "set": {"value": "noted"}}));
        json!({
            "pattern": {"parallel": {"onFailure": "Continue"}},
            "providers": [{"name": "models", "openai": {"baseURL": format!("{}/v1", self.url)}}],
            "agents": [{"name": "clerk", "model": "small", "provider": "models", "tools": ["note"]}],
            "tools": [{"name": "note", "step": "note", "description": "Note it.", "effects": "read", "parameters": {"type": "object"}}],
            "steps": steps,
        })
    }

    /// Returns steps with long bodies, and a step that reads them all.
    fn bodies(&self) -> Value {
        let step = |n: usize| json!({"name": format!("get{n}"), "http": {"url": format!("{}/body", self.url)}});
        let mut steps: Vec<Value> = (0..4).map(step).collect();
        let all: String = (0..4).map(|n| format!("{{{{ steps.get{n}.response }}}}")).collect();
        steps.push(json!({"name": "all", "set": {"value": all}}));
        json!({"steps": steps})
    }
}

/// Creates runs with as many turns and long bodies as possible in each namespace.
async fn create_runs(runs: &Runs, server: &Server, namespaces: &[Namespace]) {
    for namespace in namespaces {
        let api: Api<Workflow> = Api::namespaced(runs.cluster.token_client("dana").await.unwrap(), &namespace.name);
        for (name, spec) in [("turns", server.turns()), ("more-turns", server.turns()), ("bodies", server.bodies())] {
            let object = serde_json::from_value(workflow(name, spec)).unwrap();
            api.create(&PostParams::default(), &object).await.unwrap();
        }
    }
}

#[tokio::test]
async fn namespaces_that_want_all_memory_do_not_end_the_operator() {
    let cluster = Cluster::own().await.unwrap();
    cluster.install(&[]).await.unwrap();
    let server = Server::start().await;
    let memory = MemoryGroup::make().unwrap();
    let arguments = ["--no-lease", "--allow-address", "127.0.0.0/8"].map(str::to_owned).to_vec();
    let environment = vec![("MEMORY_LIMIT".to_owned(), LIMIT.to_string())];
    let options = OperatorOptions { arguments, environment, ..OperatorOptions::default() };
    let mut operator = OperatorProcess::start(&cluster, options).await.unwrap();
    memory.add(operator.pid()).unwrap();
    let runs = Runs::on(cluster, "victim").await;

    let mut hostile = Vec::new();
    for many in [2, 10] {
        while hostile.len() < many {
            hostile.push(runs.cluster.namespace("hostile").await.unwrap());
        }
        let fresh = if many == 2 { &hostile[..] } else { &hostile[2..] };
        let (before, _) = *server.begun.borrow();
        create_runs(&runs, &server, fresh).await;
        let mut begun = server.begun.clone();
        // Hanging answers hold memory. A later namespace may get none until these end.
        let all_turns_begun = |(begun, sent): &(usize, usize)| *begun >= before + 16 && *sent > 0;
        timeout(TIMEOUT, begun.wait_for(all_turns_begun)).await.expect("the models are asked").unwrap();
        for n in 0..3 {
            runs.another_gate_is_decided_in_time(&format!("gate-{many}-{n}")).await;
        }
        operator.until_ready().await.unwrap();
    }
    // The hanging answers continue, and the runs of the others end.
    server.released.send_replace(true);
    for namespace in &hostile {
        let api: Api<Workflow> = Api::namespaced(runs.cluster.admin().await.unwrap(), &namespace.name);
        for name in ["turns", "more-turns", "bodies"] {
            let ends = |run: Option<&Workflow>| {
                run.and_then(|run| run.status.as_ref()).is_some_and(|status| status.phase.is_end())
            };
            runs.until(api.clone(), name, "ends", ends).await;
        }
    }
    operator.until_ready().await.unwrap();
    assert_eq!(memory.kills(), 0);
    let (peak, limit) = (memory.peak_mib().unwrap(), f64::from(u32::try_from(LIMIT >> 20).unwrap()));
    assert!(peak < 0.8 * limit, "{peak} of {limit} MiB");
    signoff_tests::tried(server.begun.borrow().0, "answers that want all memory");
}
