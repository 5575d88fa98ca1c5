//! Installs Signoff by its chart with helm, waits until its rules are enforced, and creates the operator's identity.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams};
use kube::config::Kubeconfig;
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, ResourceExt};
use serde_json::json;

use super::cluster::Cluster;
use super::{connect, kubeconfig};

/// The namespace that the chart is installed into.
pub const OPERATOR_NAMESPACE: &str = "signoff-system";
/// The name of the operator's service account in [`OPERATOR_NAMESPACE`].
pub const OPERATOR_ACCOUNT: &str = "signoff-operator";

/// The deadline until the rules are enforced. CRDs are established within a second, and policies are enforced about
/// five seconds later.
const TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The lifetime of tokens: longer than any suite. A demo that stays up renews its token.
const TOKEN_SECONDS: i64 = 12 * 3600;
const DEFAULT_POD: &str = "signoff-operator-outside";
/// The users for whom holders of `signoff-delegate` can vote on a test cluster.
const DELEGATES_SPEAK_FOR: &str = "roles.delegate.people={alice@example.com,bob@example.com}";

/// The operator's service account with a token bound to a Pod, which admission policies take for the operator.
#[derive(Clone)]
pub struct OperatorIdentity {
    /// The Pod that the token is bound to. It is never scheduled and stands for a process outside the cluster.
    pub pod: String,
    /// The Pod's uid: the first half of the operator's incarnation.
    pub uid: String,
    kubeconfig: PathBuf,
    token: PathBuf,
    admin: Client,
}

impl Cluster {
    /// Runs `helm upgrade --install signoff` without the operator's Deployment, with `values` as `--set` takes them.
    /// Waits for the CRDs, and until forged requests are refused and the requester is stamped. Then creates the
    /// operator's identity.
    ///
    /// # Errors
    /// helm's error, or the rule that is not in force after a minute.
    pub async fn install(&self, values: &[(&str, &str)]) -> Result<()> {
        self.install_chart(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/signoff"), values).await
    }

    /// Installs the chart in this folder as [`Self::install`] does.
    ///
    /// # Errors
    /// As [`Self::install`].
    pub async fn install_chart(&self, chart: &Path, values: &[(&str, &str)]) -> Result<()> {
        let mut arguments: Vec<String> = ["upgrade", "--install", "signoff"].map(str::to_owned).into();
        arguments.push(chart.display().to_string());
        arguments.extend(["--namespace", OPERATOR_NAMESPACE, "--create-namespace"].map(str::to_owned));
        arguments.extend(["--set", "operator.enabled=false", "--set", DELEGATES_SPEAK_FOR].map(str::to_owned));
        for (name, value) in values {
            arguments.extend(["--set".to_owned(), format!("{name}={value}")]);
        }
        self.helm(arguments).run().await?.ok()?;
        self.in_force().await?;
        self.operator_identity(DEFAULT_POD).await?;
        Ok(())
    }

    /// Waits until the CRDs are established, forged objects are refused and requesters are stamped. Tests also call it
    /// after they have changed policies.
    ///
    /// # Errors
    /// The rule that is not in force after a minute, and the API server's last answer.
    pub async fn in_force(&self) -> Result<()> {
        let admin = self.admin().await?;
        let crds: Api<CustomResourceDefinition> = Api::all(admin.clone());
        // The CRDs of the installed chart: an earlier one has fewer.
        let installed = crds.list(&ListParams::default()).await?;
        let names = installed.items.iter().map(ResourceExt::name_any);
        let names: Vec<String> = names.filter(|name| name.ends_with(".signoff.dev")).collect();
        let has_blobs = names.iter().any(|name| name.starts_with("blobs."));
        for name in &names {
            let established = await_condition(crds.clone(), name, conditions::is_crd_established());
            let established = tokio::time::timeout(TIMEOUT, established).await;
            established.with_context(|| format!("CRD {name} is not established after {TIMEOUT:?}"))??;
        }
        tokio::try_join!(
            repeat_until_success("Pods of a run can be forged", async || { expect_forged_pod_denied(&admin).await }),
            repeat_until_success("values of a run can be forged", async || {
                if has_blobs { expect_forged_value_denied(&admin).await } else { Ok(()) }
            }),
            repeat_until_success("approvals can be forged", async || { expect_forged_approval_denied(&admin).await }),
            repeat_until_success("requesters are not stamped on workflows", async || {
                expect_requester_stamped(&admin).await
            }),
        )?;
        Ok(())
    }

    /// Returns the operator's identity in a Pod of this name; two names are two incarnations.
    ///
    /// # Errors
    /// The chart is not installed, or the API server refuses the Pod or the token.
    pub async fn operator_identity(&self, pod: &str) -> Result<OperatorIdentity> {
        let admin = self.admin().await?;
        let pods: Api<Pod> = Api::namespaced(admin.clone(), OPERATOR_NAMESPACE);
        let created = match pods.create(&PostParams::default(), &unscheduled_pod(pod)?).await {
            Err(kube::Error::Api(status)) if status.code == 409 => pods.get(pod).await,
            other => other,
        };
        let uid = created.context("making the operator's Pod: is the chart installed?")?.metadata.uid;
        let folder = self.folder().join("operator");
        std::fs::create_dir_all(&folder)?;
        let identity = OperatorIdentity {
            pod: pod.to_owned(),
            uid: uid.context("a Pod without a uid")?,
            kubeconfig: folder.join(format!("{pod}.yaml")),
            token: folder.join(format!("{pod}.token")),
            admin,
        };
        identity.renew().await?;
        let everybody = Kubeconfig::read_from(self.kubeconfig())?;
        kubeconfig::write(
            &identity.kubeconfig,
            &kubeconfig::with_token_file(&everybody, "operator", &identity.token)?,
        )?;
        Ok(identity)
    }

    /// Returns a client that admission policies take for the operator.
    ///
    /// # Errors
    /// The chart is not installed.
    pub async fn operator_client(&self) -> Result<Client> {
        connect(&self.operator_kubeconfig()?, "operator", None).await
    }

    /// Returns a kubeconfig for the operator's process.
    ///
    /// # Errors
    /// The chart is not installed.
    pub fn operator_kubeconfig(&self) -> Result<PathBuf> {
        let file = self.folder().join("operator").join(format!("{DEFAULT_POD}.yaml"));
        ensure!(file.is_file(), "Signoff is not installed on this cluster yet: there is no operator's identity");
        Ok(file)
    }
}

impl OperatorIdentity {
    /// Returns a kubeconfig that reads the token from a file, so that a running program finds a renewed token.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Returns a client with this identity.
    ///
    /// # Errors
    /// The kubeconfig cannot be used.
    pub async fn client(&self) -> Result<Client> {
        connect(&self.kubeconfig, "operator", None).await
    }

    /// Replaces the token by a new one, which is valid for half a day.
    ///
    /// # Errors
    /// The API server refuses the request, or the Pod is gone.
    pub async fn renew(&self) -> Result<()> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.admin.clone(), OPERATOR_NAMESPACE);
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                audiences: None,
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Pod".to_owned()),
                    name: Some(self.pod.clone()),
                    uid: Some(self.uid.clone()),
                }),
                expiration_seconds: Some(TOKEN_SECONDS),
            }),
            ..TokenRequest::default()
        };
        let answer = accounts.create_token_request(OPERATOR_ACCOUNT, &PostParams::default(), &request).await;
        let status = answer.context("a token for the operator's service account")?.status;
        let token = status.and_then(|status| status.token).context("a token request was answered without a token")?;
        kubeconfig::write_private(&self.token, &token)
    }
}

/// Returns a Pod that never runs, because no scheduler has the name that it asks for.
fn unscheduled_pod(name: &str) -> Result<Pod> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "schedulerName": "signoff.dev/never",
            "serviceAccountName": OPERATOR_ACCOUNT,
            "automountServiceAccountToken": false,
            "securityContext": {"runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "outside",
                "image": "outside",
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
            }],
        },
    }))?)
}

/// Repeats `ask` until it succeeds, at most for [`TIMEOUT`]; `problem` completes the error. No event tells when every
/// API server enforces a policy, so requests find out.
async fn repeat_until_success(problem: &str, ask: impl AsyncFn() -> Result<()>) -> Result<()> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let Err(error) = ask().await else {
            return Ok(());
        };
        if Instant::now() > deadline {
            bail!("the chart is installed, and after {TIMEOUT:?} {problem}: {error:#}");
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn dry_run() -> PostParams {
    PostParams { dry_run: true, ..PostParams::default() }
}

/// Fails unless a policy denied the request.
fn expect_denial<T>(answer: kube::Result<T>) -> Result<()> {
    match answer {
        // A policy's denial is 422 Invalid by default, or 403 if the policy says so. Any other error is no refusal.
        Err(kube::Error::Api(status))
            if [403, 422].contains(&status.code) && status.message.contains("ValidatingAdmissionPolicy") =>
        {
            Ok(())
        }
        Err(error) => Err(error.into()),
        Ok(_) => bail!("a forged request was accepted"),
    }
}

/// Fails until the Pod policy refuses a Pod with a run's label, which only the operator can create.
async fn expect_forged_pod_denied(admin: &Client) -> Result<()> {
    let forged = json!({"metadata": {"name": "forged", "labels": {"signoff.dev/workflow": "forged"}},
        "spec": {"schedulerName": "never", "automountServiceAccountToken": false, "containers": [{"name": "c", "image": "c"}]}});
    let forged: Pod = serde_json::from_value(forged)?;
    expect_denial(Api::<Pod>::namespaced(admin.clone(), "default").create(&dry_run(), &forged).await)
}

/// Fails until the Blob policy refuses a value of a run, which only the operator can create.
async fn expect_forged_value_denied(admin: &Client) -> Result<()> {
    let forged = json!({"apiVersion": "signoff.dev/v1alpha1", "kind": "Blob", "metadata": {"name": "forged"},
        "spec": {"data": "x"}});
    let blobs: Api<DynamicObject> = Api::namespaced_with(admin.clone(), "default", &resource("Blob"));
    expect_denial(blobs.create(&dry_run(), &serde_json::from_value(forged)?).await)
}

fn resource(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("signoff.dev", "v1alpha1", kind))
}

/// Fails until the Approval policy refuses an Approval, which only the operator can create. All its fields are right.
async fn expect_forged_approval_denied(admin: &Client) -> Result<()> {
    let digest = format!("sha256:{}", "a".repeat(64));
    let forged = json!({
        "apiVersion": "signoff.dev/v1alpha1",
        "kind": "Approval",
        "metadata": {"name": "forged-aaaaaaaaaa"},
        "spec": {"request": {
            "workflow": {"name": "forged", "uid": "00000000-0000-0000-0000-000000000000"},
            "gate": {"name": "forged", "path": "forged", "type": "step", "visit": 1},
            "prompt": "forged",
            "allowedVerdicts": ["Approve"],
            "quorums": [{"source": "gate forged", "approvers": [{"kind": "User", "name": "forged"}], "threshold": 1}],
            "requestedBy": "forged",
            "timeout": {},
            "deadline": "2100-01-01T00:00:00Z",
            "guardEpoch": "forged",
            "specDigest": digest,
            "digest": digest,
        }},
    });
    let approvals = Api::<DynamicObject>::namespaced_with(admin.clone(), "default", &resource("Approval"));
    expect_denial(approvals.create(&dry_run(), &serde_json::from_value(forged)?).await)
}

/// Fails until a Workflow that names no requester is stored with the user who created it.
async fn expect_requester_stamped(admin: &Client) -> Result<()> {
    let workflow = json!({
        "apiVersion": "signoff.dev/v1alpha1",
        "kind": "Workflow",
        "metadata": {"generateName": "stamped-"},
        "spec": {"steps": [{"name": "only", "set": {"value": "1"}}]},
    });
    let workflows = Api::<DynamicObject>::namespaced_with(admin.clone(), "default", &resource("Workflow"));
    let stored = workflows.create(&dry_run(), &serde_json::from_value(workflow)?).await?;
    let requester = stored.data.pointer("/spec/requestedBy").and_then(|user| user.as_str()).unwrap_or_default();
    ensure!(!requester.is_empty(), "{} was stored without who asked", stored.name_any());
    Ok(())
}
