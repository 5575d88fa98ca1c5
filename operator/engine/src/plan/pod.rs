//! The checks of a `pod` step.
//!
//! **Invariant:** no template is part of a command line: a rendered value reaches a container as an environment
//! variable or as a file.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use signoff_api::pod::{CONTAINER, FILES, PodStep, Resources};

use super::{PlannedPod, Validator, step::StepContext};

/// Fields of the step's container that a `podTemplate` must not set, because the step itself sets them.
const OF_CONTAINER: [&str; 9] = [
    "image",
    "command",
    "args",
    "env",
    "resources",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "imagePullPolicy",
    "restartPolicy",
];
/// Fields of a Pod's spec that a `podTemplate` must not set.
const OF_POD: [&str; 7] = [
    "restartPolicy",
    "serviceAccountName",
    "serviceAccount",
    "nodeSelector",
    "tolerations",
    "activeDeadlineSeconds",
    "ephemeralContainers",
];

impl Validator<'_> {
    /// Plans the container of a `pod` step: parses its variables and files, and checks its other fields.
    pub(super) fn plan_pod_step(&mut self, pod: &PodStep, context: &StepContext<'_>) -> Option<PlannedPod> {
        let field = |part: &str| format!("{}.pod.{part}", context.field);
        let before = self.errors.len();
        let (mut env, mut files) = (BTreeMap::new(), BTreeMap::new());
        self.check_unique(pod.env.iter().map(|entry| entry.name.as_str()), &field("env"));
        for (at, entry) in pod.env.iter().enumerate() {
            if entry.value.is_some() == entry.value_from.is_some() {
                self.error(field(&format!("env[{at}]")), "a variable has either value or valueFrom");
            }
            if let Some(source) = &entry.value
                && let Some(template) =
                    self.parse_known_template(source, &field(&format!("env[{at}].value")), &context.known)
            {
                env.insert(entry.name.clone(), template);
            }
        }
        for (at, entry) in pod.files.iter().enumerate() {
            let field = field(&format!("files[{at}]"));
            if !entry.path.starts_with('/') || entry.path.split('/').skip(1).any(|part| matches!(part, "" | "." | ".."))
            {
                self.error(
                    format!("{field}.path"),
                    "write an absolute path without `.` and `..`, such as /in/plan.json",
                );
            }
            let template = self.parse_known_template(&entry.content, &format!("{field}.content"), &context.known);
            if let Some(template) = template
                && files.insert(entry.path.clone(), template).is_some()
            {
                self.error(format!("{field}.path"), format!("duplicate path {}: paths must be unique", entry.path));
            }
        }
        self.check_command_literals(pod, &field);
        self.report_forbidden(format!("{}.pod", context.field), self.policies.refuses_container(pod));
        self.check_quantities(pod.resources.as_ref(), &field("resources"));
        self.check_unique(pod.volumes.iter().map(|entry| entry.name.as_str()), &field("volumes"));
        if let Some(template) = &pod.pod_template {
            let own_volumes: Vec<&str> = pod.volumes.iter().map(|volume| volume.name.as_str()).chain([FILES]).collect();
            for (part, message) in forbidden_fields(&template.0, &own_volumes) {
                self.error(field(&format!("podTemplate{part}")), message);
            }
        }
        (self.errors.len() == before).then(|| PlannedPod { spec: pod.clone(), env, files })
    }

    /// Checks that no rendered value becomes part of a command line, neither by a template nor by the `$(NAME)` of
    /// Kubernetes.
    fn check_command_literals(&mut self, pod: &PodStep, field: &impl Fn(&str) -> String) {
        let is_template = |text: &str| text.contains("{{") || text.contains("{%");
        if is_template(&pod.image) {
            self.error(field("image"), "an image must not contain a template: people approve exactly this one");
        }
        let rendered = pod.env.iter().filter(|entry| entry.value.as_deref().is_some_and(is_template));
        let rendered: BTreeSet<&str> = rendered.map(|entry| entry.name.as_str()).collect();
        let lists = [("command", &pod.command), ("args", &pod.args)];
        for (name, at, text) in
            lists.iter().flat_map(|(name, list)| list.iter().enumerate().map(move |(at, text)| (name, at, text)))
        {
            if is_template(text) {
                let remedy = "a command line is not a template, because what a model says could become a command: give the \
                              value in env or files, and let the program read \"$NAME\" or the file";
                self.error(field(&format!("{name}[{at}]")), remedy);
            }
            if let Some(variable) = rendered.iter().find(|variable| text.contains(&format!("$({variable})"))) {
                let message = format!(
                    "$({variable}) would put a rendered value into the command line before the program sees it: in a \
                     shell write \"${variable}\", with the quotes"
                );
                self.error(field(&format!("{name}[{at}]")), message);
            }
        }
        // The command of a probe and the subpath of a mounted volume expand variables like a command line.
        let template = pod.pod_template.as_ref().map(|template| Value::Object(template.0.clone()));
        for (place, text) in template.iter().flat_map(texts_with_paths) {
            if let Some(variable) = rendered.iter().find(|variable| text.contains(&format!("$({variable})"))) {
                let message = format!(
                    "$({variable}) would put a rendered value where Kubernetes reads a command or a path: remove it"
                );
                self.error(field(&format!("podTemplate{place}")), message);
            }
        }
    }

    /// Reports invalid quantities of resources.
    fn check_quantities(&mut self, resources: Option<&Resources>, field: &str) {
        for (kind, list) in resources.iter().flat_map(|r| [("requests", &r.requests), ("limits", &r.limits)]) {
            for (name, value) in list.iter().filter(|(_, value)| !is_quantity(value)) {
                self.error(
                    format!("{field}.{kind}.{name}"),
                    format!("{value:?} is not a valid quantity: write 500m, 2, 64Mi or 1Gi"),
                );
            }
        }
    }
}

/// Whether a text is a valid quantity of Kubernetes.
pub(crate) fn is_quantity(text: &str) -> bool {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number = text.strip_suffix(unit).unwrap_or_default();
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let known = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let exponent = unit.strip_prefix(['e', 'E']).map(|rest| rest.trim_start_matches(['+', '-']));
    digits(whole) && digits(fraction) && (known.contains(&unit) || exponent.is_some_and(digits))
}

/// Returns all texts in a JSON value, each with its path.
fn texts_with_paths(value: &Value) -> Vec<(String, &str)> {
    values_with_paths(value).into_iter().filter_map(|(place, found)| Some((place, found.as_str()?))).collect()
}

/// Returns all values in a JSON value that have no parts, each with its path, such as `.containers[0].name`.
fn values_with_paths(value: &Value) -> Vec<(String, &Value)> {
    let parts: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields.iter().map(|(name, value)| (format!(".{name}"), value)).collect(),
        Value::Array(items) => items.iter().enumerate().map(|(at, item)| (format!("[{at}]"), item)).collect(),
        _ => return vec![(String::new(), value)],
    };
    let below = parts.into_iter().flat_map(|(part, value)| {
        values_with_paths(value).into_iter().map(move |(place, found)| (format!("{part}{place}"), found))
    });
    below.collect()
}

/// Returns the forbidden fields of a `podTemplate`: the path of each, and the reason with the remedy. `own_volumes` are
/// the names of the step's volumes.
fn forbidden_fields(template: &Map<String, Value>, own_volumes: &[&str]) -> Vec<(String, String)> {
    let mut refused = Vec::new();
    let mut refuse = |place: String, why: &str| refused.push((place, why.to_owned()));
    for (name, value) in template {
        for (place, _) in values_with_paths(value).into_iter().filter(|(_, found)| found.is_null()) {
            refuse(format!(".{name}{place}"), "null would remove a value: leave it out");
        }
    }
    for (part, value) in template {
        match (part.as_str(), value) {
            ("metadata", Value::Object(fields)) => {
                for (name, value) in fields {
                    let keys = value.as_object().into_iter().flat_map(serde_json::Map::keys);
                    let reserved =
                        keys.filter(|key| key.split('/').next().is_some_and(|p| p.ends_with(signoff_api::GROUP)));
                    match name.as_str() {
                        "labels" | "annotations" if !value.is_object() && !value.is_null() => {
                            refuse(format!(".metadata.{name}"), "it must be an object");
                        }
                        "labels" | "annotations" => {
                            for key in reserved {
                                refuse(
                                    format!(".metadata.{name}[{key}]"),
                                    "names below signoff.dev are reserved for the operator: choose another name",
                                );
                            }
                        }
                        _ => refuse(
                            format!(".metadata.{name}"),
                            "only labels and annotations can be given here: leave this out",
                        ),
                    }
                }
            }
            ("spec", Value::Object(spec)) => {
                for name in OF_POD.iter().filter(|name| spec.contains_key(**name)) {
                    refuse(
                        format!(".spec.{name}"),
                        "the step has a field for it, or the operator sets it: leave it out",
                    );
                }
                for list in ["containers", "initContainers", "volumes"] {
                    let items = spec.get(list).and_then(Value::as_array).into_iter().flatten();
                    for (at, item) in items.enumerate() {
                        let name = item.get("name").and_then(Value::as_str);
                        match name {
                            None => refuse(
                                format!(".spec.{list}[{at}]"),
                                "the name is missing: containers are merged by their names",
                            ),
                            Some(name) if list == "volumes" && own_volumes.contains(&name) => {
                                refuse(
                                    format!(".spec.{list}[{at}].name"),
                                    "the step already has a volume of this name: choose another name",
                                );
                            }
                            Some(_) => {}
                        }
                        if item.get("restartPolicyRules").is_some() {
                            refuse(
                                format!(".spec.{list}[{at}].restartPolicyRules"),
                                "the step's container runs once: leave it out",
                            );
                        }
                        for field in OF_CONTAINER.iter().filter(|field| item.get(**field).is_some()) {
                            let is_refused = name == Some(CONTAINER) || *field == "restartPolicy";
                            if list == "containers" && is_refused {
                                let why = "the step has a field for it: leave it out";
                                refuse(format!(".spec.containers[{at}].{field}"), why);
                            }
                        }
                    }
                }
            }
            ("metadata" | "spec", _) => refuse(format!(".{part}"), "it must be an object"),
            _ => refuse(format!(".{part}"), "a podTemplate has only metadata and spec: leave this out"),
        }
    }
    refused
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn places(template: &Value) -> Vec<String> {
        forbidden_fields(template.as_object().unwrap(), &["data", FILES]).into_iter().map(|(place, _)| place).collect()
    }

    #[test]
    fn quantities_are_read_as_kubernetes_reads_them() {
        for good in ["1", "0.5", "500m", "64Mi", "1Gi", "2k", "1e3", "1E", "100n"] {
            assert!(is_quantity(good), "{good}");
        }
        for bad in ["", "Mi", "64mi", "1 Gi", "-1", "lots", ".5", "1.", "1e", "64MiB", "$(rm)"] {
            assert!(!is_quantity(bad), "{bad}");
        }
    }

    #[test]
    fn a_pod_template_with_fields_of_the_step_is_refused() {
        let template = json!({
            "kind": "Pod",
            "metadata": {"name": "mine", "labels": {"signoff.dev/workflow": "other", "team": "pay"}},
            "spec": {"restartPolicy": "Always", "serviceAccountName": "admin", "hostNetwork": true,
                "containers": [{"name": "step", "image": "other", "stdin": true}, {"image": "nameless"}, {"name": "side", "image": "x"}]},
        });
        assert_eq!(
            places(&template),
            [
                ".kind",
                ".metadata.name",
                ".metadata.labels[signoff.dev/workflow]",
                ".spec.restartPolicy",
                ".spec.serviceAccountName",
                ".spec.containers[0].image",
                ".spec.containers[1]",
            ]
        );
        let fine = json!({"metadata": {"labels": {"team": "pay"}}, "spec": {
            "priorityClassName": "low", "volumes": [{"name": "more", "emptyDir": {}}],
            "containers": [{"name": "step", "workingDir": "/srv"}, {"name": "side", "image": "x", "env": []}],
            "initContainers": [{"name": "proxy", "image": "x", "restartPolicy": "Always"}],
        }});
        assert_eq!(places(&fine), Vec::<String>::new());
    }

    #[test]
    fn a_pod_template_that_removes_or_repeats_something_is_refused() {
        for (template, place) in [
            (json!({"metadata": {"labels": null}}), ".metadata.labels"),
            (json!({"metadata": {"annotations": "none"}}), ".metadata.annotations"),
            (json!({"metadata": null}), ".metadata"),
            (
                json!({"spec": {"hostPID": true, "containers": [{"name": "step", "volumeMounts": null}]}}),
                ".spec.containers[0].volumeMounts",
            ),
            (
                json!({"spec": {"volumes": [{"name": "signoff-files", "configMap": {"name": "x"}}]}}),
                ".spec.volumes[0].name",
            ),
            (json!({"spec": {"volumes": [{"name": "data", "configMap": {"name": "x"}}]}}), ".spec.volumes[0].name"),
            (
                json!({"spec": {"containers": [{"name": "step", "restartPolicy": "Always"}]}}),
                ".spec.containers[0].restartPolicy",
            ),
            (
                json!({"spec": {"containers": [{"name": "side", "restartPolicy": "Always"}]}}),
                ".spec.containers[0].restartPolicy",
            ),
            (json!({"spec": {"containers": [{"name": "step", "resources": {}}]}}), ".spec.containers[0].resources"),
            (
                json!({"spec": {"initContainers": [{"name": "a", "image": "x", "restartPolicyRules": []}]}}),
                ".spec.initContainers[0].restartPolicyRules",
            ),
            (json!({"spec": {"serviceAccount": "admin"}}), ".spec.serviceAccount"),
            (json!({"spec": {"nodeSelector": {}}}), ".spec.nodeSelector"),
        ] {
            let found = places(&template);
            assert!(found.iter().any(|refused| refused == place), "{template}: {found:?}");
        }
    }
}
