//! The rules of writes: names, versions, generations, defaults, finalizers, and who may change which part of an object.
//! Admission is not simulated: there are no schemas, policies or users here.

use serde_json::{Map, Value, json};
use std::sync::Arc;

use super::clock::Clock;
use super::kubelet::grace_seconds;
use super::status::Refusal;
use super::store::{Key, Resource, Store, Version};

/// Fills in the defaults of a schema; called on every object that is written.
pub(crate) type Defaults = Arc<dyn Fn(&Resource, &mut Value) + Send + Sync>;

/// The store and the settings that writes need.
pub(crate) struct Writes<'a> {
    pub(crate) store: &'a mut Store,
    pub(crate) clock: Clock,
    pub(crate) defaults: &'a Defaults,
    /// Whether everything is checked and answered, and nothing is stored.
    pub(crate) dry_run: bool,
}

/// The preconditions of a deletion.
#[derive(Debug, Default)]
pub(crate) struct Preconditions {
    pub(crate) uid: Option<String>,
    pub(crate) version: Option<String>,
    /// The seconds that a Pod gets to end, if the deletion names them.
    pub(crate) grace: Option<i64>,
}

/// The object after a deletion, which may have to wait.
pub(crate) enum Deleted {
    Gone(Arc<Version>),
    /// The object is marked for deletion: finalizers hold it, or it is a Pod that gets time to end.
    Waiting(Arc<Version>),
}

impl Writes<'_> {
    /// Creates an object in a namespace (empty: cluster-scoped).
    pub(crate) fn create(
        &mut self,
        resource: &Resource,
        namespace: &str,
        mut object: Value,
    ) -> Result<Arc<Version>, Refusal> {
        let sent = metadata(&mut object)?;
        let text = |field: &str| sent.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (mut name, generate, given_namespace) = (text("name"), text("generateName"), text("namespace"));
        if !text("resourceVersion").is_empty() {
            return Err(Refusal::bad_request("resourceVersion should not be set on objects to be created"));
        }
        if name.is_empty() && !generate.is_empty() {
            name = generate + &self.store.next_suffix();
        }
        if !given_namespace.is_empty() && given_namespace != namespace {
            return Err(Refusal::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        let key = Key { resource: resource.clone(), namespace: namespace.to_owned(), name };
        check_names(&key, sent)?;
        if self.store.get(&key).is_some() {
            return Err(Refusal::already_exists(&key));
        }

        sent.insert("name".into(), json!(key.name));
        if !namespace.is_empty() {
            sent.insert("namespace".into(), json!(namespace));
        }
        sent.insert("uid".into(), json!(self.store.next_uid()));
        sent.insert("creationTimestamp".into(), json!(self.timestamp()));
        for absent in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields"] {
            sent.shift_remove(absent);
        }
        if has_generation(resource) {
            sent.insert("generation".into(), json!(1));
        }
        // The status belongs to its subresource, from the first write on.
        remove_field(&mut object, "status");
        self.put(&key, object)
    }

    /// Replaces the status of an object, or everything but the status, as PUT does. Returns the old version if nothing
    /// changed.
    pub(crate) fn update(&mut self, key: &Key, status: bool, mut object: Value) -> Result<Arc<Version>, Refusal> {
        let old = Arc::clone(self.store.get(key).ok_or_else(|| Refusal::not_found(key))?);
        let sent = metadata(&mut object)?;
        let text = |field: &str| sent.get(field).and_then(Value::as_str).unwrap_or_default();
        if text("name") != key.name
            || !matches!(text("namespace"), namespace if namespace.is_empty() || namespace == key.namespace)
        {
            return Err(Refusal::bad_request("the name of the object does not match the name on the URL"));
        }
        match text("uid") {
            "" => {}
            uid if uid == old.meta("uid") => {}
            uid => {
                let why =
                    format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {}", old.meta("uid"));
                return Err(Refusal::conflict(key, &why));
            }
        }
        match text("resourceVersion") {
            "" if key.resource.is_custom() => {
                return Err(Refusal::invalid(
                    key,
                    "metadata.resourceVersion: Invalid value: 0: must be specified for an update",
                ));
            }
            "" => {}
            version if version == old.meta("resourceVersion") => {}
            _ => return Err(Refusal::modified(key)),
        }
        let object = if status {
            replace_status(&old.object, object)
        } else {
            self.keep_status_and_identity(key, &old.object, object)?
        };
        if object == old.object {
            return Ok(old);
        }
        if is_being_deleted(&object)
            && !has_finalizers(&object)
            && object["metadata"]["deletionGracePeriodSeconds"] == 0
        {
            return self.remove_stored(key, &old);
        }
        self.put(key, object)
    }

    /// Deletes an object, or marks it when finalizers hold it.
    pub(crate) fn delete(&mut self, key: &Key, only_if: &Preconditions) -> Result<Deleted, Refusal> {
        let old = Arc::clone(self.store.get(key).ok_or_else(|| Refusal::not_found(key))?);
        for (what, wanted, found) in
            [("UID", &only_if.uid, old.meta("uid")), ("ResourceVersion", &only_if.version, old.meta("resourceVersion"))]
        {
            if let Some(wanted) = wanted.as_deref().filter(|wanted| *wanted != found) {
                let why =
                    format!("Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}");
                return Err(Refusal::conflict(key, &why));
            }
        }
        let grace = grace_seconds(key, &old.object, only_if.grace);
        if !has_finalizers(&old.object) && grace.is_none() {
            return Ok(Deleted::Gone(self.remove_stored(key, &old)?));
        }
        if is_being_deleted(&old.object) {
            return Ok(Deleted::Waiting(old));
        }
        let mut object = old.object.clone();
        mark_for_deletion(&mut object, grace.unwrap_or(0), self.clock);
        Ok(Deleted::Waiting(self.put(key, object)?))
    }

    /// Returns the new object with the status of the old one, and with the metadata that only the server sets.
    fn keep_status_and_identity(&self, key: &Key, old: &Value, mut new: Value) -> Result<Value, Refusal> {
        // The server sets identity and times, whatever the client sent.
        let sent = metadata(&mut new)?;
        check_names(key, sent)?;
        for field in [
            "uid",
            "namespace",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
        ] {
            match old["metadata"].get(field) {
                Some(value) => sent.insert(field.to_owned(), value.clone()),
                None => sent.shift_remove(field),
            };
        }
        sent.shift_remove("managedFields");
        match old.get("status") {
            Some(status) => new["status"] = status.clone(),
            None => remove_field(&mut new, "status"),
        }
        count_generation(&key.resource, old, &mut new);
        Ok(new)
    }

    fn put(&mut self, key: &Key, mut object: Value) -> Result<Arc<Version>, Refusal> {
        (self.defaults)(&key.resource, &mut object);
        if self.dry_run { Ok(Version::draft(object)) } else { Ok(self.store.put(key, object)) }
    }

    fn remove_stored(&mut self, key: &Key, old: &Arc<Version>) -> Result<Arc<Version>, Refusal> {
        if self.dry_run { Ok(Arc::clone(old)) } else { self.store.remove(key).ok_or_else(|| Refusal::not_found(key)) }
    }

    fn timestamp(&self) -> String {
        self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }
}

/// Marks an object for deletion, which is due in this many seconds at the latest.
pub(crate) fn mark_for_deletion(object: &mut Value, grace: i64, clock: Clock) {
    let due = clock.now().saturating_add(jiff::SignedDuration::from_secs(grace)).unwrap_or(jiff::Timestamp::MAX);
    object["metadata"]["deletionTimestamp"] = json!(due.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    object["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
}

/// Begins a new generation if the desired part of an object changed.
pub(crate) fn count_generation(resource: &Resource, old: &Value, new: &mut Value) {
    if has_generation(resource) && desired(old) != desired(new) {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or(0);
        new["metadata"]["generation"] = json!(generation + 1);
    }
}

/// Sets the defaults of Signoff's own kinds and of pods: a status from the first moment on.
pub(crate) fn defaults(resource: &Resource, object: &mut Value) {
    let status = match (resource.group.as_str(), resource.plural.as_str()) {
        ("signoff.dev", "workflows" | "approvals") => json!({"phase": "Pending", "seq": 0}),
        ("", "pods") => json!({"phase": "Pending"}),
        _ => return,
    };
    if object.get("status").is_none_or(Value::is_null) {
        object["status"] = status;
    }
}

/// Returns the object's metadata, and creates it if it is missing.
pub(crate) fn metadata(object: &mut Value) -> Result<&mut Map<String, Value>, Refusal> {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    if text("apiVersion").is_empty() || text("kind").is_empty() {
        return Err(Refusal::bad_request("Object 'Kind' or 'apiVersion' is missing in the request's body"));
    }
    let metadata = &mut object["metadata"];
    if metadata.is_null() {
        *metadata = json!({});
    }
    metadata.as_object_mut().ok_or_else(|| Refusal::bad_request("metadata is not an object"))
}

/// Returns the old object with the status of the new one.
fn replace_status(old: &Value, mut new: Value) -> Value {
    let mut object = old.clone();
    match new.get_mut("status").map(Value::take) {
        Some(status) if !status.is_null() => object["status"] = status,
        _ => remove_field(&mut object, "status"),
    }
    object
}

fn check_names(key: &Key, metadata: &Map<String, Value>) -> Result<(), Refusal> {
    let name = &key.name;
    if name.is_empty() {
        return Err(Refusal::invalid(key, "metadata.name: Required value: name or generateName is required"));
    }
    // RBAC names are path segments, all others DNS subdomains.
    let allowed =
        |character: char| character.is_ascii_lowercase() || character.is_ascii_digit() || "-.".contains(character);
    let edge = |character: char| character.is_ascii_alphanumeric();
    let lenient = key.resource.group == "rbac.authorization.k8s.io";
    if !lenient && (name.len() > 253 || !name.chars().all(allowed) || !name.starts_with(edge) || !name.ends_with(edge))
    {
        return Err(Refusal::invalid(
            key,
            &format!("metadata.name: Invalid value: \"{name}\": not a lowercase RFC 1123 subdomain"),
        ));
    }
    let labels = metadata.get("labels").and_then(Value::as_object);
    for (label, value) in labels.into_iter().flatten() {
        if !value.as_str().is_some_and(is_label_value) {
            let why = format!(
                "metadata.labels: Invalid value: {value}: {label} needs at most 63 letters, digits, '-', '_' or '.', with a letter or digit at both ends"
            );
            return Err(Refusal::invalid(key, &why));
        }
    }
    Ok(())
}

fn is_label_value(value: &str) -> bool {
    let inner = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
    let edge = |character: char| character.is_ascii_alphanumeric();
    value.is_empty()
        || (value.len() <= 63 && value.chars().all(inner) && value.starts_with(edge) && value.ends_with(edge))
}

/// Returns the desired part of an object: all but its identity and its status. A change of it is a new generation.
fn desired(object: &Value) -> Vec<(&String, &Value)> {
    let fields = object.as_object().into_iter().flatten();
    let mut fields: Vec<_> =
        fields.filter(|(name, _)| !["apiVersion", "kind", "metadata", "status"].contains(&name.as_str())).collect();
    fields.sort_unstable_by_key(|(name, _)| *name);
    fields
}

fn has_generation(resource: &Resource) -> bool {
    resource.is_custom()
        || matches!(resource.plural.as_str(), "pods" | "deployments" | "jobs" | "customresourcedefinitions")
        || resource.group == "admissionregistration.k8s.io"
}

fn is_being_deleted(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

fn has_finalizers(object: &Value) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty())
}

fn remove_field(object: &mut Value, field: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.shift_remove(field);
    }
}
