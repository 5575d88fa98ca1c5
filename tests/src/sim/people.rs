//! People beside the operators, who apply, decide and edit. The requests of their clients are in the log under their
//! names. Admission is not simulated, so neither their identity nor their rights are checked.

use serde_json::{Value, json};

use super::store::Resource;
use super::{ApiServer, Incarnation, Refusal};

/// A person with a user name.
#[derive(Clone)]
pub struct Person {
    server: ApiServer,
    life: Incarnation,
}

impl ApiServer {
    /// Returns a person; faults for actors of this name apply to the [`Person::client`] only.
    pub fn as_person(&self, user: &str) -> Person {
        Person { server: self.clone(), life: self.incarnation(user) }
    }
}

impl Person {
    /// Returns this person's own client.
    pub fn client(&self) -> kube::Client {
        self.server.client_of(&self.life)
    }

    /// Writes this person's entry of an Approval's `spec.decisions`, at once and without faults.
    ///
    /// # Errors
    /// 404 when the Approval does not exist.
    pub fn decides(&self, namespace: &str, approval: &str, decision: Value) -> Result<Value, Refusal> {
        let user = self.life.actor().to_owned();
        self.edits("approvals", namespace, approval, |object| object["spec"]["decisions"][user] = decision)
    }

    /// Sets a label, as another user might at any moment.
    ///
    /// # Errors
    /// 404 when the object does not exist.
    pub fn labels(
        &self,
        plural: &str,
        namespace: &str,
        name: &str,
        label: &str,
        value: &str,
    ) -> Result<Value, Refusal> {
        self.edits(plural, namespace, name, |object| object["metadata"]["labels"][label] = json!(value))
    }

    /// Edits one of Signoff's objects in any way, at once and without faults.
    ///
    /// # Errors
    /// 404 when the object does not exist.
    pub fn edits(
        &self,
        plural: &str,
        namespace: &str,
        name: &str,
        edit: impl FnOnce(&mut Value),
    ) -> Result<Value, Refusal> {
        let resource = Resource::new("signoff.dev", plural);
        let key = super::Key { resource: resource.clone(), namespace: namespace.to_owned(), name: name.to_owned() };
        self.server.edit(&resource, namespace, name, edit).ok_or_else(|| Refusal::not_found(&key))
    }
}
