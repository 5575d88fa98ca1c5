//! `cargo xtask demo --pods`: an agent in two containers with people before and between them, and an image that cannot
//! be pulled, on a real node.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use signoff_tests::cargo::{becomes, root, surround};
use signoff_tests::control_plane::{BINARIES, binary};
use signoff_tests::node::{Input, Machine, Node, is_inside};
use signoff_tests::say;

use super::harness::Harness;
use super::person::{self, GateOutcome};
use super::play::expect;
use super::show;

const EXAMPLE: &str = "examples/pods/agent.yaml";

/// Builds the programs, and plays the story on a machine of its own.
pub(super) fn run(is_manned: bool) -> Result<ExitCode> {
    if is_inside() {
        let programs = std::env::var_os(BINARIES).context("the folder of the programs, which was built outside")?;
        return tokio::runtime::Runtime::new()?.block_on(async {
            tokio::select! {
                outcome = play(Path::new(&programs), is_manned) => outcome,
                _ = tokio::signal::ctrl_c() => bail!("interrupted; everything that was started has been stopped"),
            }
        });
    }
    let machine = Machine::find()?;
    let programs = super::build()?;
    // Builds the control plane and the programs of a node if they are missing.
    binary()?.needed_by_pods()?;
    let input = if is_manned { Input::Terminal } else { Input::Nothing };
    // The build may have replaced the file of this running program, so it is started by its path.
    let mut inside = machine.inside(&programs.join("xtask"), input)?;
    inside.args(["demo", "--pods"]).env(BINARIES, programs);
    if !is_manned {
        inside.arg("--script");
    }
    becomes(surround(&mut inside))
}

async fn play(programs: &Path, is_manned: bool) -> Result<ExitCode> {
    let started = Instant::now();
    let step = |text: &str| say::step(&format!("{:4.1} s  {text}", started.elapsed().as_secs_f64()));
    step("starting a control plane, containerd and a kubelet, in namespaces of their own");
    let node = Node::start().await?;
    let cluster = node.cluster();
    step("installing Signoff by its chart, letting people in, and starting the operator as its own service account");
    let ((), namespace) = tokio::try_join!(cluster.install(&[]), cluster.namespace("agents"))?;
    let (mut harness, ()) = tokio::try_join!(
        Harness::open(cluster.clone(), namespace.clone(), programs, Vec::new(), false),
        // A user who cannot create Pods cannot create a run with Pods either.
        namespace.bind("edit", "dana@example.com"),
    )?;
    step("ready");
    if let Err(error) = play_acts(&harness, &node, is_manned).await {
        harness.report_failure().await;
        return Err(error);
    }
    harness.clear().await?;
    Ok(ExitCode::SUCCESS)
}

async fn play_acts(harness: &Harness, node: &Node, is_manned: bool) -> Result<()> {
    show::print_exports_inside(harness);
    let first = start_run(harness, node).await?;
    if !decide_call(harness, node, &first, is_manned).await? {
        return Ok(());
    }
    let second = harness.wait_for_approval("agent", &[&first]).await?;
    if !decide_plan(harness, &second, is_manned).await? {
        return Ok(());
    }
    show_end(harness).await?;
    show_missing_image(harness).await?;
    show::words("That was the story: every act turned out as told.");
    Ok(())
}

async fn start_run(harness: &Harness, node: &Node) -> Result<String> {
    show::act(
        "1. dana asks",
        "An agent is to plan in one container and to act in another; people are asked before the first and between them.\n\
         What is applied is examples/pods/agent.yaml with its image named by digest, without the contextDisplay of its gate\n\
         (which then shows the facts and the log), and with one gate more:",
    );
    let gate = json!({
        "name": "exactly-this", "type": "stepStart", "steps": ["plan"],
        "hitl": {
            "prompt": "Run exactly this?", "approvers": [{"kind": "Group", "name": "finance"}],
            "excludeRequester": true, "allowedVerdicts": ["Approve", "Reject"],
        },
    });
    let gates = json!({"gates": [gate]});
    show::output(&serde_saphyr::to_string(&gates)?);
    let manifest = write_manifest(harness, "agent", &build_manifest(&node.busybox().by_digest(), &gates)?)?;
    expect(
        &harness.kubectl("dana", &["apply", "-f", &manifest]).await?,
        true,
        &["workflow.signoff.dev/agent created"],
    )?;
    let wait = ["wait", "--for=condition=Waiting", "workflow/agent", "--timeout=60s"];
    expect(&harness.kubectl("dana", &wait).await?, true, &["condition met"])?;
    let first = harness.wait_for_approval("agent", &[]).await?;
    expect(&harness.kubectl("dana", &["get", "workflows,approvals"]).await?, true, &["Waiting", "Pending", &first])?;
    expect(&list_pods(harness, "agent").await?, true, &["No resources found"])?;
    Ok(first)
}

/// Returns the example with `image` in its Pods and with `gates`, and without the context of its gate.
fn build_manifest(image: &str, gates: &Value) -> Result<Value> {
    let text = std::fs::read_to_string(root().join(EXAMPLE)).context(EXAMPLE)?;
    let mut manifest: Value = serde_saphyr::from_str(&text).context(EXAMPLE)?;
    let steps = manifest.pointer_mut("/spec/steps").and_then(Value::as_array_mut).context(EXAMPLE)?;
    for step in steps {
        if let Some(pod) = step.get_mut("pod") {
            pod["image"] = json!(image);
        }
        if let Some(gate) = step.get_mut("hitl").and_then(Value::as_object_mut) {
            gate.remove("contextDisplay");
        }
    }
    manifest["spec"]["gates"] = gates["gates"].clone();
    Ok(manifest)
}

fn write_manifest(harness: &Harness, name: &str, manifest: &Value) -> Result<String> {
    let file: PathBuf = harness.cluster.folder().join(format!("{name}.yaml"));
    std::fs::write(&file, serde_saphyr::to_string(manifest)?)?;
    Ok(file.display().to_string())
}

async fn list_pods(harness: &Harness, run: &str) -> Result<signoff_tests::control_plane::Finished> {
    harness.kubectl("dana", &["get", "pods", "-l", &format!("signoff.dev/workflow={run}")]).await
}

async fn decide_call(harness: &Harness, node: &Node, approval: &str, is_manned: bool) -> Result<bool> {
    show::act(
        "2. alice reads exactly what would run",
        "Image, command and files, every value filled in. Her approval is bound to their digest: another call would open the gate again.",
    );
    let shown = harness.approve("alice", &["show", approval]).await?;
    // The plugin breaks a line as long as a digest.
    let image: String = node.busybox().by_digest().chars().take(60).collect();
    expect(&shown, true, &["Run exactly this?", &image, "archive the reports of October"])?;
    decide(harness, approval, is_manned, "this image and this command").await
}

async fn decide_plan(harness: &Harness, approval: &str, is_manned: bool) -> Result<bool> {
    show::act(
        "3. The container has run, and its plan waits for alice",
        "Its Pod was created after her decision was recorded, and deleted after its end was. She decides about its result and the\n\
         end of its log; nothing runs meanwhile.",
    );
    wait_until_gone(harness, "agent").await?;
    expect(&list_pods(harness, "agent").await?, true, &["No resources found"])?;
    let shown = harness.approve("alice", &["show", approval]).await?;
    expect(
        &shown,
        true,
        &["Shall the agent do this?", "- archive the reports of October", "reading the task", "exitCode: 0"],
    )?;
    decide(harness, approval, is_manned, "a good plan").await
}

/// Approves, or lets the person at the terminal decide. Returns whether the run continues.
async fn decide(harness: &Harness, approval: &str, is_manned: bool, reason: &str) -> Result<bool> {
    if !is_manned {
        expect(&harness.approve("alice", &["approve", approval, "--reason", reason]).await?, true, &["approved"])?;
        return Ok(true);
    }
    match person::ask_permission(harness, approval).await? {
        GateOutcome::Nothing => {
            show::words("Nothing was decided, so nothing runs: the run would wait until its deadline.")
        }
        GateOutcome::Rejected => show::words("A no is an answer: the run ends, and no further container begins."),
        _ => return Ok(true),
    }
    Ok(false)
}

async fn show_end(harness: &Harness) -> Result<()> {
    show::act(
        "4. The second container acts by that plan",
        "The plan reaches it as a file. Both Pods are deleted; their names and their output stay in the run.",
    );
    let wait = ["wait", "--for=condition=Complete", "workflow/agent", "--timeout=60s"];
    expect(&harness.kubectl("dana", &wait).await?, true, &["condition met"])?;
    let outputs = harness.kubectl("dana", &["get", "workflow", "agent", "-o", "jsonpath={.status.outputs}"]).await?;
    expect(&outputs, true, &["done: archive the reports of October", "done: tell finance"])?;
    wait_until_gone(harness, "agent").await?;
    expect(&list_pods(harness, "agent").await?, true, &["No resources found"])?;
    let lines = r#"jsonpath={range .status.steps[*]}{.path}: {.object} {.facts} {.log.tail}{"\n"}{end}"#;
    let records = harness.kubectl("dana", &["get", "workflow", "agent", "-o", lines]).await?;
    expect(&records, true, &["plan: signoff-step-agent-", "reading the task", "act: signoff-step-agent-"])
}

/// Waits until all Pods of a run are gone.
async fn wait_until_gone(harness: &Harness, run: &str) -> Result<()> {
    let label = format!("signoff.dev/workflow={run}");
    harness.read("dana", &["wait", "--for=delete", "pods", "-l", &label, "--timeout=60s"]).await?;
    Ok(())
}

async fn show_missing_image(harness: &Harness) -> Result<()> {
    show::act(
        "5. An image that does not exist",
        "A typo in the name of an image. Within seconds the run shows the kubelet's message and the name of the Pod.",
    );
    let manifest = json!({
        "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "typo"},
        "spec": {"steps": [
            {"name": "work", "pod": {"image": "example.com/nothing:1", "securityContext": {"runAsUser": 65534}}},
        ]},
    });
    let manifest = write_manifest(harness, "typo", &manifest)?;
    expect(&harness.kubectl("dana", &["apply", "-f", &manifest]).await?, true, &["created"])?;
    let wait = ["wait", "--for=condition=PodsPending", "workflow/typo", "--timeout=60s"];
    expect(&harness.kubectl("dana", &wait).await?, true, &["condition met"])?;
    let condition = r#"jsonpath={range .status.conditions[?(@.type=="PodsPending")]}{.reason}: {.message}{"\n"}{end}"#;
    let conditions = harness.kubectl("dana", &["get", "workflow", "typo", "-o", condition]).await?;
    expect(&conditions, true, &["Pull", "example.com/nothing:1"])?;
    let listed = list_pods(harness, "typo").await?;
    expect(&listed, true, &["signoff-step-typo-"])?;
    let pod = listed.stdout.split_whitespace().find(|word| word.starts_with("signoff-step-typo-")).unwrap_or_default();
    let described = harness.excerpt("dana", &["describe", "wf", "typo"], "Status:").await?;
    ensure!(described.contains(pod), "kubectl describe should name the Pod {pod}");

    show::act("6. dana cancels the run", "A run that is cancelled leaves no Pod behind.");
    let cancel = ["patch", "workflow", "typo", "--type=merge", "-p", r#"{"spec":{"cancel":true}}"#];
    expect(&harness.kubectl("dana", &cancel).await?, true, &["patched"])?;
    let wait = ["wait", "--for=condition=Finished", "workflow/typo", "--timeout=60s"];
    expect(&harness.kubectl("dana", &wait).await?, true, &["condition met"])?;
    wait_until_gone(harness, "typo").await?;
    expect(&list_pods(harness, "typo").await?, true, &["No resources found"])?;
    expect(&harness.kubectl("dana", &["get", "workflows"]).await?, true, &["Succeeded", "Cancelled"])
}
