//! A `pod` step: renders its container. The controller creates the Pod.

use signoff_api::Seq;

use crate::{
    plan::{PlannedPod, is_quantity},
    replay::{
        activity::{ActivityKey, Start},
        run::{RenderError, Run},
        step_invocation::StepInvocation,
    },
    transition::{Call, CallContent, PodCall},
};

/// The maximum size of one variable, in bytes: the kernel refuses 128 KiB.
const MAX_VARIABLE: usize = 64 * 1024;
/// The maximum size of all files of a step, in bytes: they are stored in a Pod's annotations.
const MAX_FILES: usize = 192 * 1024;

/// The maximum size of a rendered step, in bytes: a Pod must fit into etcd, and the shown text into a Blob.
const MAX_POD: usize = 384 * 1024;

/// Renders the container from the values as of `seq`.
pub(super) fn render_call<'a>(
    run: &Run<'a>,
    invocation: &StepInvocation<'a>,
    pod: &PlannedPod,
    seq: Seq,
    key: &ActivityKey,
) -> Result<Start, RenderError> {
    let scope = invocation.scope(run, seq)?;
    let mut spec = pod.spec.clone();
    for variable in &mut spec.env {
        let Some(template) = pod.env.get(&variable.name) else { continue };
        let value = template.render(&scope)?;
        if value.len() > MAX_VARIABLE || value.contains('\0') {
            let why = "is longer than an environment variable can be (64 KiB), or has a NUL byte: give it as a file in pod.files";
            return Err(RenderError::Invalid(format!("pod.env {}: it {why}", variable.name)));
        }
        variable.value = Some(value);
    }
    let mut file_bytes = 0;
    for file in &mut spec.files {
        let Some(template) = pod.files.get(&file.path) else { continue };
        file.content = template.render(&scope)?;
        file_bytes += file.content.len();
    }
    if file_bytes > MAX_FILES {
        let why = format!(
            "pod.files: they have {file_bytes} bytes; the maximum is {MAX_FILES}: pass a reference, or a volume"
        );
        return Err(RenderError::Invalid(why));
    }
    if let Some(image) = invocation.overrides.parameters.get("image") {
        spec.image.clone_from(image);
    }
    for resource in ["memory", "cpu"] {
        let Some(value) = invocation.overrides.parameters.get(resource) else { continue };
        if !is_quantity(value) {
            return Err(RenderError::Invalid(format!(
                "{resource}: {value:?} is not a valid quantity: write 500m, 2, 64Mi or 1Gi"
            )));
        }
        let resources = spec.resources.get_or_insert_default();
        resources.limits.insert(resource.to_owned(), value.clone());
        resources.requests.insert(resource.to_owned(), value.clone());
    }
    let size = serde_json::to_vec(&spec).map_or(usize::MAX, |bytes| bytes.len());
    if size > MAX_POD {
        let why = format!("pod: with its values it has {size} bytes; the maximum is {MAX_POD}: pass references");
        return Err(RenderError::Invalid(why));
    }
    let plan = run.plan;
    Ok(Start::Call(Call {
        path: key.path.clone(),
        attempt: key.attempt,
        idempotent: invocation.step.is_idempotent(),
        timeout: invocation.step.timeout,
        content: CallContent::Pod(Box::new(PodCall {
            name: signoff_api::names::pod(&plan.name, &plan.uid, &key.path, key.attempt),
            spec,
        })),
    }))
}
