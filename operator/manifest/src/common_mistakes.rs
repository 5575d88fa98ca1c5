//! Common mistakes of authors: fields with the names of other tools, and values of another form, each with a remedy.
//!
//! Such fields stay errors: only the remedy is worded here.

use crate::old_fields::find;

/// Returns the remedy for a field of other tools. `field` is its path, such as `spec.steps[2].when`.
pub(crate) fn foreign_field_remedy(field: &str) -> Option<&'static str> {
    find(&FOREIGN, field)
}

/// Returns the remedy for a text in place of an object. `field` is its path, such as `spec.steps[2].agent`.
pub(crate) fn object_form(field: &str) -> Option<&'static str> {
    find(&OBJECTS, field)
}

/// The fields of other tools with their remedies.
const FOREIGN: [(&str, &str); 47] = [
    ("spec.steps[].when", SKIP_IF),
    ("spec.steps[].if", SKIP_IF),
    ("spec.steps[].condition", SKIP_IF),
    ("spec.steps[].unless", "did you mean skipIf? The step is skipped where its condition is true"),
    ("spec.steps[].needs", DEPENDS_ON),
    ("spec.steps[].requires", DEPENDS_ON),
    ("spec.steps[].after", DEPENDS_ON),
    ("spec.steps[].runAfter", DEPENDS_ON),
    ("spec.steps[].dependencies", DEPENDS_ON),
    ("spec.steps[].approval", HITL),
    ("spec.steps[].gate", HITL),
    ("spec.steps[].suspend", HITL),
    ("spec.steps[].manual", HITL),
    ("spec.steps[].approvers", HITL),
    ("spec.steps[].image", POD),
    ("spec.steps[].command", POD),
    ("spec.steps[].container", POD),
    ("spec.steps[].script", POD),
    ("spec.steps[].run", POD),
    ("spec.steps[].template", "a step is one of agent, pod, http, set and hitl: write what it does here"),
    (
        "spec.steps[].prompt",
        "the input of an agent is `agent: {name: <agent>, input: <text>}`, and a question is hitl.prompt",
    ),
    ("spec.steps[].input", "write `agent: {name: <agent>, input: <text>}`"),
    ("spec.steps[].agent.prompt", "did you mean input?"),
    ("spec.steps[].hitl.message", "did you mean prompt?"),
    ("spec.steps[].hitl.question", "did you mean prompt? Several questions are in form.questions"),
    ("spec.steps[].hitl.users", APPROVERS),
    ("spec.steps[].hitl.groups", APPROVERS),
    ("spec.steps[].hitl.deadline", "write `timeout: {after: 24h, action: Reject}`"),
    ("spec.steps[].hitl.minApprovers", "did you mean threshold?"),
    ("spec.tasks", "did you mean steps?"),
    ("spec.jobs", "did you mean steps?"),
    ("spec.parameters", "did you mean inputs? Each is `{name: <name>, value: <value>}`"),
    ("spec.models", "a model is at a provider: did you mean providers?"),
    ("spec.providers[].claude", "did you mean anthropic?"),
    ("spec.providers[].google", "did you mean gemini?"),
    ("spec.providers[].gpt|chatgpt", "did you mean openai?"),
    (
        "spec.providers[].azure|azureOpenAI|azureOpenai",
        "write `openai: {baseURL: \"https://RESOURCE.openai.azure.com/openai/v1\", key: <name>}`",
    ),
    (
        "spec.providers[].bedrock|vertex|vertexAI|vllm|llamacpp|litellm|deepseek|groq",
        "write `openai: {baseURL: <URL>, key: <name>}`, because the server speaks an API of OpenAI",
    ),
    (
        "spec.providers[].kind|type|provider",
        "the kind is a field of its own: write `anthropic: {...}`, `openai: {...}`, `gemini: {...}` or `ollama: {...}`",
    ),
    ("spec.providers[].baseURL|baseUrl|key", "it belongs to the kind: write it into `openai: {...}` or another one"),
    (
        "spec.providers[].apiKey|apikey|api_key|token|keyFrom",
        "add `{name: <name>, secret: <Secret>, key: <key>}` to spec.secrets, and write `key: <name>` into `openai: {...}` or another kind",
    ),
    (
        "spec.providers[].openai|anthropic|gemini|ollama.apiKey|apikey|api_key|apiKeyFrom|token|secret|secretRef",
        "add `{name: <name>, secret: <Secret>, key: <key>}` to spec.secrets, and write `key: <name>` here",
    ),
    ("spec.providers[].openai|anthropic|gemini|ollama.url|endpoint|host", "did you mean baseURL?"),
    (
        "spec.providers[].openai|anthropic|gemini|ollama.model",
        "each agent has its own: write `agents: [{name: <agent>, model: <model>}]`",
    ),
    ("spec.agents[].price.input", "did you mean inputPerMillion? It is a text such as \"3.00\""),
    ("spec.agents[].price.output", "did you mean outputPerMillion? It is a text such as \"15.00\""),
    ("spec.agents[].price.cached|cachedInput", "did you mean cachedInputPerMillion? It is a text such as \"0.30\""),
];

/// The objects that authors often write as a text, with their form.
const OBJECTS: [(&str, &str); 15] = [
    ("spec.steps[].agent", "`agent: {name: <agent>, input: <text>}`"),
    ("spec.steps[].set", "`set: {value: <text>}`"),
    ("spec.steps[].http", "`http: {url: <URL>, method: POST, body: <text>}`"),
    ("spec.steps[].mcp", "`mcp: {server: <server>, tool: <tool>, arguments: {...}}`"),
    ("spec.steps[].pod", "`pod: {image: <image>, command: [...]}`"),
    ("spec.steps[].hitl", "`hitl: {prompt: <question>, approvers: [{kind: Group, name: <group>}]}`"),
    ("spec.steps[].retry", "`retry: {limit: 3}`"),
    ("spec.steps[].hitl.timeout", TIMEOUT),
    ("spec.gates[].hitl.timeout", TIMEOUT),
    ("spec.steps[].hitl.approvers[]", SUBJECT),
    ("spec.gates[].hitl.approvers[]", SUBJECT),
    ("spec.steps[].hitl.escalateTo[]", SUBJECT),
    ("spec.inputs[]", "`- {name: <name>, value: <value>}`"),
    ("spec.pattern", "`pattern: {dag: {}}`, or no pattern for a chain"),
    ("spec.outputs", "`outputs: {from: <text>}`"),
];

const TIMEOUT: &str = "`timeout: {after: 24h, action: Reject}`";
const SUBJECT: &str = "`{kind: Group, name: <group>}`, or kind: User";
const SKIP_IF: &str =
    "did you mean skipIf? The step is skipped where its condition is true, so negate it: `skipIf: \"!(...)\"`";
const DEPENDS_ON: &str =
    "did you mean dependsOn? It needs `pattern: {dag: {}}`; without a pattern, steps run in the order of the list";
const HITL: &str =
    "a gate is a step of its own: `hitl: {prompt: <question>, approvers: [{kind: Group, name: <group>}]}`";
const POD: &str = "a container is `pod: {image: <image>, command: [...]}`";
const APPROVERS: &str = "did you mean approvers? Write `approvers: [{kind: Group, name: <group>}]`, or kind: User";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_foreign_field_is_one_that_a_workflow_has() {
        assert_eq!(foreign_field_remedy("spec.steps[3].when"), Some(SKIP_IF));
        for (path, _) in FOREIGN {
            let mut holders = vec![crate::schema::of("Workflow").unwrap_or(&serde_json::Value::Null)];
            let mut parts = path.split('.').peekable();
            while let Some(part) = parts.next() {
                let mut found: Vec<&serde_json::Value> = Vec::new();
                for name in part.trim_end_matches("[]").split('|') {
                    found.extend(holders.iter().copied().map(|holder| &holder["properties"][name]));
                }
                // All parts but the last are existing objects.
                assert!(found.iter().all(|schema| schema.is_object() == parts.peek().is_some()), "{path}: {part}");
                let is_list = part.ends_with("[]");
                holders = found.into_iter().map(|schema| if is_list { &schema["items"] } else { schema }).collect();
            }
        }
    }

    #[test]
    fn foreign_fields_of_providers_have_a_remedy() {
        for kind in signoff_api::workflow::Provider::KINDS {
            for name in ["apiKey", "apikey", "token"] {
                let told = foreign_field_remedy(&format!("spec.providers[3].{kind}.{name}")).unwrap_or_default();
                let has_both = told.contains("to spec.secrets") && told.contains("`key: <name>` here");
                assert_eq!(has_both, kind != "scripted", "{kind}.{name}: {told}");
            }
        }
        for (brand, kind) in [
            ("claude", "anthropic"),
            ("gpt", "openai"),
            ("google", "gemini"),
            ("azure", "https://RESOURCE.openai.azure.com/openai/v1"),
            ("groq", "openai"),
        ] {
            let told = foreign_field_remedy(&format!("spec.providers[0].{brand}")).unwrap_or_default();
            assert!(told.contains(kind), "{brand}: {told}");
        }
    }

    #[test]
    fn every_form_is_that_of_an_object() {
        for (path, form) in OBJECTS {
            let mut schema = crate::schema::of("Workflow").unwrap_or(&serde_json::Value::Null);
            for name in path.split('.') {
                let inner = &schema["properties"][name.trim_end_matches("[]")];
                schema = if name.ends_with("[]") { &inner["items"] } else { inner };
            }
            assert_eq!(schema["type"], "object", "{path}");
            assert_eq!(object_form(&path.replace("[]", "[7]")), Some(form));
        }
    }
}
