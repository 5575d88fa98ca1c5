//! Runs attacks: creates the scene, sends the attack, checks that nothing of it is stored, and sends the honest twin. A
//! failure does not stop the others.

use futures::StreamExt;
use kube::{Client, Error};
use serde_json::{Value, json};
use signoff_tests::attacks::{Actor, Answer, Attack, Body, Gate, Ground, Object, Request, Scene, Twin, Way};

use super::harness::{Harness, number};
use crate::policies::harness as policies;

/// The number of attacks at the same time, enough to keep two processors busy.
const AT_ONCE: usize = 6;

/// Runs all attacks, and returns every failure by the attack's name.
pub(super) async fn run_attacks(attacks: Vec<Attack>) -> Vec<String> {
    let actors: Vec<_> =
        attacks.iter().flat_map(|attack| [Some(attack.who), attack.row.honest.who]).flatten().collect();
    let harness = Harness::open(&actors).await;
    let harness = &harness;
    let mut failures: Vec<_> = futures::stream::iter(attacks)
        .map(async |attack| {
            let case = Case { harness, number: number(), ground: attack.row.ground };
            case.run(&attack).await.err().map(|why| format!("* {}: {why}", attack.name))
        })
        .buffer_unordered(AT_ONCE)
        .filter_map(async |failure| failure)
        .collect()
        .await;
    failures.sort();
    failures
}

/// One attack, with its number and its namespace.
struct Case<'a> {
    harness: &'a Harness,
    number: u32,
    ground: Ground,
}

/// The object of an attack: its path, and its state when it was last read.
struct StoredObject {
    path: String,
    object: Value,
}

impl Case<'_> {
    async fn run(&self, attack: &Attack) -> Result<(), String> {
        let row = &attack.row;
        let there = self.create_scene(&row.scene).await.map_err(|why| format!("the scene could not be set: {why}"))?;
        let answer = self.send(attack.who, attack.how, row.on, &row.body, &there, (row.strict, row.dry_run)).await;
        match (attack.how.unsupported().map_or(row.answer, Answer::Refused), answer) {
            (Answer::Refused(words), Err(said)) => {
                let words = self.fill_text(words, attack.who).replace("{verb}", attack.how.verb());
                if !said.contains(&words) && !row.or.is_some_and(|or| said.contains(or)) {
                    return Err(format!("refused, but not with {words:?}: {said}"));
                }
            }
            (Answer::Refused(words), Ok(object)) => {
                return Err(format!("accepted, and should have been refused with {words:?}: {object}"));
            }
            (Answer::Ignored, Err(said)) => return Err(format!("refused, and should have been ignored: {said}")),
            (Answer::Ignored, Ok(_)) => {}
        }
        if let Some(there) = &there {
            let now = self.read(&there.path).await.map_err(|why| format!("it is gone: {why}"))?;
            for field in ["spec", "status", "data"] {
                if without_empty_decisions(&now[field]) != without_empty_decisions(&there.object[field]) {
                    return Err(format!("{field} is another afterwards: {}", now[field]));
                }
            }
            for field in ["labels", "annotations", "ownerReferences", "finalizers", "deletionTimestamp", "uid"] {
                if now["metadata"][field] != there.object["metadata"][field] {
                    return Err(format!("metadata.{field} is another afterwards: {}", now["metadata"][field]));
                }
            }
        }
        self.send_honest_twin(attack, there).await
    }

    /// Sends the honest twin of the attack, and checks its answer.
    async fn send_honest_twin(&self, attack: &Attack, there: Option<StoredObject>) -> Result<(), String> {
        let (row, Twin { who, how, on, body, reaches, .. }) = (&attack.row, &attack.row.honest);
        // An ignored attack may have left a trace, such as a field manager.
        let there = match there {
            Some(StoredObject { path, .. }) => Some(StoredObject { object: self.read(&path).await?, path }),
            None => None,
        };
        // A merge patch replaces a way that the API server does not read.
        let same = if attack.how.unsupported().is_some() { Way::Merge } else { attack.how };
        let (who, how, on) = (who.unwrap_or(attack.who), how.unwrap_or(same), on.unwrap_or(row.on));
        // The twin of an attack on all objects is a request about one object.
        let on = if on == Object::All && how != Way::DeleteAll { Object::Scene } else { on };
        match (self.send(who, how, on, body, &there, (row.strict, row.dry_run)).await, reaches) {
            (Ok(_), None) => Ok(()),
            (Err(said), Some(words)) if said.contains(words) => Ok(()),
            (answer, _) => Err(format!("its honest twin ({}) was answered: {answer:?}", row.honest.what)),
        }
    }

    /// Creates the scene, and returns its object.
    async fn create_scene(&self, scene: &Scene) -> Result<Option<StoredObject>, String> {
        let namespace = self.harness.namespace(self.ground);
        let (path, object) = match scene {
            Scene::Nothing => return Ok(None),
            Scene::Approval(gate) => return self.create_gate(gate).await.map(Some),
            Scene::Workflow(fields) => {
                let mut workflow = policies::workflow(&format!("case-{}", self.number), fields.clone());
                workflow["metadata"]["labels"] = json!({"case": self.number.to_string()});
                let path = format!("/apis/signoff.dev/v1alpha1/namespaces/{namespace}/workflows");
                (path.clone(), self.create(Actor::Requester, &path, workflow).await?)
            }
            Scene::Object(who, path, object) => {
                let path = self.fill_text(path, *who);
                (path.clone(), self.create(*who, &path, self.fill_value(object, *who)).await?)
            }
        };
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let path = format!("{path}/{name}");
        Ok(Some(StoredObject { object: self.read(&path).await?, path }))
    }

    /// Creates an Approval with the earlier changes and the status of the scene, deletes it if the scene says so, and
    /// returns it as it is stored.
    async fn create_gate(&self, gate: &Gate) -> Result<StoredObject, String> {
        let mut approval = self.approval(gate.request.clone());
        if gate.metadata.is_object() {
            json_patch::merge(&mut approval["metadata"], &gate.metadata);
        }
        approval["metadata"]["labels"]["case"] = json!(self.number.to_string());
        if gate.deleted {
            approval["metadata"]["finalizers"] = json!(["signoff.dev/test"]);
        }
        let collection = self.approvals();
        let made = self.create(Actor::Operator, &collection, approval).await?;
        let path = format!("{collection}/{}", made["metadata"]["name"].as_str().unwrap_or_default());
        let mut there = Some(StoredObject { path, object: made });
        for (who, change) in &gate.before {
            let change = Body::Change(change.clone());
            self.send(*who, Way::ApplyAsAnother, Object::Scene, &change, &there, (false, false)).await?;
        }
        if let Some(status) = &gate.status {
            let change = Body::Change(json!({"status": status}));
            self.send(Actor::Operator, Way::Merge, Object::Sub("status"), &change, &there, (false, false)).await?;
        }
        if gate.deleted {
            let delete = Body::Change(json!({}));
            self.send(Actor::GarbageCollector, Way::Delete, Object::Scene, &delete, &there, (false, false)).await?;
        }
        let Some(StoredObject { path, object }) = &mut there else { return Err("no Approval".to_owned()) };
        *object = self.read(path).await?;
        Ok(StoredObject { path: path.clone(), object: object.clone() })
    }

    /// Returns an Approval as the operator creates it; every case has a run of its own.
    fn approval(&self, mut request: Value) -> Value {
        request["workflow"] = json!({"name": "refund", "uid": format!("00000000-0000-4000-8000-{:012}", self.number)});
        serde_json::to_value(policies::approval(request)).unwrap()
    }

    fn approvals(&self) -> String {
        format!("/apis/signoff.dev/v1alpha1/namespaces/{}/approvals", self.harness.namespace(self.ground))
    }

    async fn create(&self, who: Actor, path: &str, object: Value) -> Result<Value, String> {
        let request = Way::Create.request(&Value::Null, &Body::Change(object));
        self.call(who, path, request).await
    }

    async fn read(&self, path: &str) -> Result<Value, String> {
        let request = Request { method: "GET", query: String::new(), content: "application/json", body: String::new() };
        self.call(Actor::ClusterAdmin, path, request).await
    }

    async fn send(
        &self,
        who: Actor,
        how: Way,
        on: Object,
        body: &Body,
        there: &Option<StoredObject>,
        (strict, dry_run): (bool, bool),
    ) -> Result<Value, String> {
        let body = match body {
            Body::Change(change) => Body::Change(self.fill_value(change, who)),
            Body::Text(text) => Body::Text(self.fill_text(text, who)),
        };
        let (collection, stored, body) = match (there, body) {
            (Some(there), body) => (None, there.object.clone(), body),
            // An Approval that does not exist yet: each way creates the same one.
            (None, Body::Change(change)) if change.get("{approval}").is_some() => {
                let mut approval = self.approval(json!({}));
                json_patch::merge(&mut approval, &change["{approval}"]);
                (Some(self.approvals()), approval.clone(), Body::Change(approval))
            }
            (None, Body::Change(object)) => (None, object.clone(), Body::Change(object)),
            (None, body) => (None, Value::Null, body),
        };
        let name = stored["metadata"]["name"].as_str().unwrap_or_default();
        let by_name = |collection: String| match how {
            Way::Merge | Way::Json | Way::Strategic | Way::Apply | Way::Replace if there.is_none() => {
                format!("{collection}/{name}")
            }
            _ => collection,
        };
        let scene = there.as_ref().map(|there| there.path.clone()).unwrap_or_default();
        let path = match (on, collection) {
            (_, Some(collection)) => by_name(collection),
            (Object::Scene, None) => scene,
            (Object::Sub(sub), None) => format!("{scene}/{sub}"),
            (Object::All, None) => scene.rsplit_once('/').map(|(all, _)| all.to_owned()).unwrap_or_default(),
            (Object::Path(path), None) => by_name(self.fill_text(path, who)),
        };
        let mut request = how.request(&stored, &body);
        if how == Way::DeleteAll && on != Object::All {
            return self.call(who, path.rsplit_once('/').map_or("", |(all, _)| all), request).await;
        }
        request.query.push_str(if strict { "&fieldValidation=Strict" } else { "" });
        request.query.push_str(if dry_run { "&dryRun=All" } else { "" });
        self.call(who, &path, request).await
    }

    async fn call(&self, who: Actor, path: &str, request: Request) -> Result<Value, String> {
        let (client, headers) = self.harness.connection(who, self.ground);
        let uri = format!("{path}{}", self.fill_text(&request.query, who));
        let mut http = http::Request::builder().method(request.method).uri(uri);
        http = http.header("content-type", request.content);
        for (name, value) in &headers {
            http = http.header(name, value);
        }
        send_request(client, http.body(request.body.into_bytes()).unwrap()).await
    }

    /// Fills in the placeholders of a text.
    fn fill_text(&self, text: &str, who: Actor) -> String {
        let me = self.harness.user(who, self.ground);
        text.replace("{me}", &me)
            .replace("{namespace}", self.harness.namespace(self.ground))
            .replace("{case}", &self.number.to_string())
            .replace("{owner}", self.harness.owner(self.ground))
    }

    /// Fills in the placeholders of all texts in a value.
    fn fill_value(&self, value: &Value, who: Actor) -> Value {
        match value {
            Value::String(text) => Value::String(self.fill_text(text, who)),
            Value::Array(items) => items.iter().map(|item| self.fill_value(item, who)).collect(),
            Value::Object(fields) => {
                fields.iter().map(|(key, value)| (self.fill_text(key, who), self.fill_value(value, who))).collect()
            }
            other => other.clone(),
        }
    }
}

/// Returns a part of an object in which an empty map of decisions is removed.
fn without_empty_decisions(part: &Value) -> Value {
    let mut part = part.clone();
    if part["decisions"].as_object().is_some_and(serde_json::Map::is_empty)
        && let Some(fields) = part.as_object_mut()
    {
        fields.remove("decisions");
    }
    part
}

/// Returns the object, or the API server's refusal.
async fn send_request(client: &Client, request: http::Request<Vec<u8>>) -> Result<Value, String> {
    match client.request_text(request).await {
        Ok(text) => Ok(serde_json::from_str(&text).unwrap_or_default()),
        Err(Error::Api(status)) => Err(status.message),
        Err(other) => Err(other.to_string()),
    }
}
