//! All fields of a workflow file of the Strands CLI, and their effects on an import.
//!
//! The importer reads only the listed fields, and the documentation lists each of them; tests check both.

use signoff_expr::nearest;

use super::kind::Kind::{self, Any, Either, List, Map, Number, Object, Text, Whole};

/// The effect of a field on the import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldEffect {
    /// The field becomes this field.
    Becomes(&'static str),
    /// The field has no effect on a run. It is left out with a note.
    LeftOut(&'static str),
    /// The run lacks a limit, a notice or a setting, which can be noticeable. There is a note.
    Without(&'static str),
    /// There is no equivalent: the run would do something else. There is a note.
    Missing(&'static str),
}

use FieldEffect::{Becomes, LeftOut, Missing, Without};

const TEXTS: Kind = List(&Text);
const OBJECTS: Kind = List(&Object);
/// Objects under names.
const NAMED: Kind = Map(&Object);

/// The fields of one kind of object.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// The name of the objects in the documentation.
    pub name: &'static str,
    /// Each field, the kind of its value, and its effect.
    pub fields: &'static [(&'static str, Kind, FieldEffect)],
}

/// All kinds of objects of the format.
pub const SECTIONS: &[Section] = &[
    Section {
        name: "file",
        fields: &[
            ("version", Any, LeftOut("every version is read alike")),
            ("name", Text, Becomes("metadata.name, as a DNS label")),
            ("description", Text, Becomes("the annotation kubernetes.io/description")),
            ("tags", TEXTS, Becomes("the annotation import.signoff.dev/tags")),
            ("runtime", Object, Becomes("spec.providers, spec.agents, limits")),
            ("inputs", Object, Becomes("spec.inputs")),
            ("env", Any, LeftOut("secrets and folders are the cluster's, or the environment's")),
            ("telemetry", Any, LeftOut("the operator's own telemetry is configured where it is installed")),
            ("context_policy", Object, Becomes("only notes on its fields")),
            ("skills", Any, Missing("agents load no skills")),
            ("tools", Object, Becomes("spec.tools, the steps that they run, and spec.servers")),
            ("agents", NAMED, Becomes("spec.agents")),
            ("pattern", Object, Becomes("spec.pattern, spec.steps, spec.gates")),
            ("outputs", Object, Becomes("spec.outputs")),
            (
                "security",
                Any,
                Without(
                    "nothing of it is enforced by a Workflow: put gates in front of tools, and let approval policies say what may be called",
                ),
            ),
        ],
    },
    Section {
        name: "runtime",
        fields: &[
            (
                "provider",
                Text,
                Becomes("spec.providers: anthropic, gemini and ollama by their own API, others by that of OpenAI"),
            ),
            ("model_id", Text, Becomes("spec.agents[].model")),
            ("host", Text, Becomes("baseURL in spec.providers, with the path that the API expects there")),
            ("region", Text, Becomes("part of spec.providers[].openai.baseURL for bedrock")),
            ("temperature", Number, Becomes("spec.agents[].temperature")),
            ("top_p", Any, Without("the provider's own default holds")),
            ("max_tokens", Whole, Becomes("spec.agents[].maxTokens")),
            ("max_parallel", Whole, Becomes("maxParallel of dag and parallel, maxWorkers of orchestratorWorkers")),
            ("budgets", Object, Becomes("spec.activeDeadline and graph.maxSteps")),
            (
                "failure_policy",
                Object,
                Becomes("retry of every step of an agent and of workers; a note says that other steps are not retried"),
            ),
            ("webhooks", Any, Without("no webhook is called when a gate opens: watch Approvals instead")),
        ],
    },
    Section {
        name: "runtime.budgets",
        fields: &[
            ("max_steps", Whole, Becomes("graph.maxSteps; a note says that other patterns have no such limit")),
            ("max_tokens", Any, Without("tokens are counted and not limited")),
            ("max_duration_s", Whole, Becomes("spec.activeDeadline, which does not count the time people take")),
            ("warn_threshold", Any, LeftOut("there is nothing to warn of")),
        ],
    },
    Section {
        name: "runtime.failure_policy",
        fields: &[
            ("retries", Whole, Becomes("retry.limit")),
            ("backoff", Text, Becomes("retry.backoff.factor and jitter")),
            ("wait_min", Whole, Becomes("retry.backoff.base")),
            ("wait_max", Whole, Becomes("retry.backoff.max")),
        ],
    },
    Section {
        name: "context_policy",
        fields: &[
            ("compaction", Any, Without("conversations are kept whole")),
            ("notes", Any, Missing("no notes are kept between steps")),
            ("retrieval", Object, Becomes("tools of every agent")),
        ],
    },
    Section {
        name: "context_policy.retrieval",
        fields: &[
            (
                "jit_tools",
                TEXTS,
                Becomes(
                    "tools of every agent, beside those that it lists; an agent that lists none has only these and the servers",
                ),
            ),
            ("mcp_servers", TEXTS, LeftOut("the Strands CLI does not read it: agents list servers in their tools")),
        ],
    },
    Section {
        name: "inputs",
        fields: &[
            ("required", Map(&Either(&Text, &Object)), Becomes("inputs with required: true")),
            ("optional", Map(&Either(&Text, &Object)), Becomes("inputs with required: false")),
            ("values", Object, Becomes("spec.inputs[].value, and inputs of their type where none is declared")),
        ],
    },
    Section {
        name: "input",
        fields: &[
            ("type", Text, Becomes("spec.inputs[].type")),
            ("description", Text, Becomes("spec.inputs[].description")),
            ("default", Any, Becomes("spec.inputs[].default")),
            ("enum", List(&Any), Becomes("spec.inputs[].enum")),
        ],
    },
    Section {
        name: "tools",
        fields: &[
            ("python", List(&Either(&Text, &Object)), Becomes("a tool, where it calls HTTP servers or asks people")),
            ("http_executors", OBJECTS, Becomes("a tool and an http step for each endpoint, or for each method")),
            ("mcp", OBJECTS, Becomes("spec.servers, and a gate that asks about calls of their tools")),
        ],
    },
    Section { name: "python tool", fields: &[("callable", Text, Becomes("the tool's name"))] },
    Section {
        name: "MCP server",
        fields: &[
            (
                "id",
                Text,
                Becomes(
                    "spec.servers[].name, as a DNS label of at most 20 characters; agents list all of its tools, such as crm.*",
                ),
            ),
            ("url", Text, Becomes("spec.servers[].url, which is fixed")),
            (
                "headers",
                Map(&Text),
                Becomes("spec.servers[].key and header for the first that needs a secret; a note names the others"),
            ),
            ("command", Text, Becomes("the beginning of spec.servers[].command, for local runs only")),
            (
                "args",
                TEXTS,
                Becomes("the rest of spec.servers[].command; with a credential in it, the server is left out"),
            ),
            ("env", Map(&Text), Becomes("nothing: a command has PATH and HOME only, and a note names each variable")),
        ],
    },
    Section {
        name: "http executor",
        fields: &[
            ("id", Text, Becomes("the beginning of the names of its tools")),
            ("base_url", Text, Becomes("the beginning of http.url, which is fixed")),
            (
                "headers",
                Map(&Text),
                Becomes(
                    "http.headers, which are fixed; those that need a secret http.secretHeaders, and a note names the Secret",
                ),
            ),
            ("timeout_ms", Whole, Becomes("timeout of the steps, in seconds")),
            ("description", Text, Becomes("part of tools[].description")),
            ("response_format", Text, Becomes("part of tools[].description")),
            ("authentication_info", Text, Becomes("part of tools[].description")),
            ("common_endpoints", OBJECTS, Becomes("a tool for each, whose parameters are the values in the path")),
            ("examples", OBJECTS, Becomes("part of tools[].description, where there are no common_endpoints")),
        ],
    },
    Section {
        name: "http executor's endpoint",
        fields: &[
            ("path", Text, Becomes("the end of http.url; each {value} is a parameter")),
            ("method", Text, Becomes("http.method")),
            ("description", Text, Becomes("part of tools[].description")),
        ],
    },
    Section {
        name: "http executor's example",
        fields: &[
            ("description", Text, Becomes("part of tools[].description")),
            ("method", Text, Becomes("part of tools[].description")),
            ("path", Text, Becomes("part of tools[].description")),
            ("json_data", Object, Becomes("part of tools[].description")),
        ],
    },
    Section {
        name: "agent",
        fields: &[
            ("prompt", Text, Becomes("spec.agents[].system")),
            (
                "tools",
                TEXTS,
                Becomes(
                    "spec.agents[].tools; without it, all that the file declares; what is left out is in the annotation import.signoff.dev/tools",
                ),
            ),
            ("provider", Text, Becomes("spec.agents[].provider")),
            ("model_id", Text, Becomes("spec.agents[].model")),
            ("inference", Object, Becomes("spec.agents[].temperature and maxTokens")),
            ("input_schema", Any, LeftOut("what an agent is told is text")),
            (
                "output_schema",
                Either(&Text, &Object),
                Becomes("outputSchema of its steps, where it stands in the file"),
            ),
            ("$ref", Any, Missing("other files are not read: copy the agent's prompt into this file")),
        ],
    },
    Section {
        name: "agent.inference",
        fields: &[
            ("temperature", Number, Becomes("spec.agents[].temperature")),
            ("top_p", Any, Without("the provider's own default holds")),
            ("max_tokens", Whole, Becomes("spec.agents[].maxTokens")),
        ],
    },
    Section {
        name: "step, task or node",
        fields: &[
            ("id", Text, Becomes("name, as a DNS label; references follow")),
            ("agent", Text, Becomes("agent.name")),
            ("input", Text, Becomes("agent.input")),
            ("vars", Map(&Text), Becomes("vars")),
            ("tool_overrides", TEXTS, Becomes("the tools of an agent of its own for this step")),
            ("deps", TEXTS, Becomes("dependsOn of a dag's step; a note says that no other step waits")),
            ("dependencies", TEXTS, Becomes("dependsOn of a dag's step; a note says that no other step waits")),
            ("description", Any, LeftOut("steps have no description")),
            ("skip_if", Text, Becomes("skipIf, a CEL condition")),
            ("manual_gate", Any, Missing("write a gate of the type toolExecution or specificTools into spec.gates")),
            ("type", Text, Becomes("a gate where it is hitl")),
        ],
    },
    Section {
        name: "hitl step",
        fields: &[
            ("id", Text, Becomes("name, as a DNS label; references follow")),
            ("type", Text, Becomes("hitl")),
            ("prompt", Text, Becomes("hitl.prompt")),
            ("context_display", Text, Becomes("hitl.contextDisplay")),
            ("default", Text, Becomes("the default of hitl.form, and what a timeout answers")),
            ("timeout_seconds", Whole, Becomes("hitl.timeout")),
            ("validation", Object, Becomes("hitl.form")),
            ("skip_if", Text, Becomes("skipIf, a CEL condition; a note says that a review is never skipped")),
            ("required_approvers", TEXTS, Becomes("hitl.approvers")),
            ("approval_threshold", Whole, Becomes("hitl.threshold")),
            ("deps", TEXTS, Becomes("dependsOn of a dag's step; a note says that no other step waits")),
            ("dependencies", TEXTS, Becomes("dependsOn of a dag's step; a note says that no other step waits")),
            ("description", Any, LeftOut("steps have no description")),
        ],
    },
    Section {
        name: "hitl.validation",
        fields: &[
            ("pattern", Text, Becomes("hitl.form.questions[].pattern")),
            ("error_message", Text, Becomes("hitl.form.questions[].errorMessage, beside a pattern")),
        ],
    },
    Section {
        name: "pattern",
        fields: &[("type", Text, Becomes("the name of the pattern")), ("config", Object, Becomes("its fields"))],
    },
    Section { name: "chain", fields: &[("steps", OBJECTS, Becomes("spec.steps"))] },
    Section { name: "workflow", fields: &[("tasks", OBJECTS, Becomes("spec.steps of a dag"))] },
    Section {
        name: "routing",
        fields: &[
            ("router", Object, Becomes("routing.router")),
            ("routes", NAMED, Becomes("spec.steps, each with its route as branch")),
            ("review_router", Object, Becomes("a gate that routing.router.review names")),
        ],
    },
    Section {
        name: "routing.router",
        fields: &[
            ("agent", Text, Becomes("routing.router.agent")),
            ("input", Text, Becomes("routing.router.input")),
            ("max_retries", Whole, Becomes("routing.router.maxRetries")),
            ("review_router", Object, Becomes("a gate that routing.router.review names")),
        ],
    },
    Section {
        name: "route",
        fields: &[
            ("then", OBJECTS, Becomes("spec.steps with the route as branch")),
            ("steps", OBJECTS, Becomes("spec.steps with the route as branch")),
        ],
    },
    Section {
        name: "parallel",
        fields: &[
            ("branches", OBJECTS, Becomes("spec.steps, each with its branch")),
            ("reduce", Object, Becomes("a step that parallel.reduce names")),
        ],
    },
    Section {
        name: "branch",
        fields: &[
            ("id", Text, Becomes("branch, as a DNS label; references follow")),
            ("steps", OBJECTS, Becomes("spec.steps with this branch")),
        ],
    },
    Section {
        name: "evaluator_optimizer",
        fields: &[
            ("producer", Text, Becomes("evaluatorOptimizer.producer")),
            ("evaluator", Object, Becomes("evaluatorOptimizer.evaluator")),
            ("accept", Object, Becomes("evaluatorOptimizer.accept")),
            ("revise_prompt", Text, Becomes("evaluatorOptimizer.revisePrompt")),
            ("review_gate", Object, Becomes("a gate that evaluatorOptimizer.reviewGate names")),
        ],
    },
    Section {
        name: "evaluator_optimizer.evaluator",
        fields: &[("agent", Text, Becomes("evaluator.agent")), ("input", Text, Becomes("evaluator.input"))],
    },
    Section {
        name: "evaluator_optimizer.accept",
        fields: &[
            ("min_score", Number, Becomes("accept.minScore")),
            ("max_iters", Whole, Becomes("accept.maxIterations")),
        ],
    },
    Section {
        name: "orchestrator_workers",
        fields: &[
            ("orchestrator", Object, Becomes("orchestratorWorkers.orchestrator")),
            ("decomposition_review", Object, Becomes("a gate that orchestratorWorkers.decompositionReview names")),
            ("worker_template", Object, Becomes("orchestratorWorkers.worker")),
            ("reduce_review", Object, Becomes("a gate that orchestratorWorkers.reduceReview names")),
            ("reduce", Object, Becomes("a step that orchestratorWorkers.reduce names")),
            ("writeup", Object, Becomes("a step that orchestratorWorkers.writeup names")),
        ],
    },
    Section {
        name: "orchestrator_workers.orchestrator",
        fields: &[
            ("agent", Text, Becomes("orchestrator.agent")),
            ("input", Text, Becomes("orchestrator.input")),
            ("limits", Object, Becomes("orchestrator.maxWorkers")),
        ],
    },
    Section {
        name: "orchestrator_workers.orchestrator.limits",
        fields: &[
            ("max_workers", Whole, Becomes("orchestrator.maxWorkers")),
            ("max_rounds", Whole, Becomes("nothing: work is divided once, and a note says so for more rounds")),
        ],
    },
    Section {
        name: "orchestrator_workers.worker_template",
        fields: &[
            ("agent", Text, Becomes("worker.agent")),
            ("input", Text, Becomes("worker.input")),
            ("tools", TEXTS, Becomes("the tools of an agent of its own for the workers")),
        ],
    },
    Section {
        name: "graph",
        fields: &[
            ("nodes", Either(&OBJECTS, &NAMED), Becomes("spec.steps of a graph, also where they are a map")),
            (
                "edges",
                OBJECTS,
                Becomes(
                    "graph.edges: those of one step are tried in their order; a note names an edge that is never tried",
                ),
            ),
            ("entry", Text, Becomes("graph.entry")),
            ("max_iterations", Whole, Becomes("graph.maxIterations")),
        ],
    },
    Section {
        name: "graph.edge",
        fields: &[
            ("from", Text, Becomes("from")),
            ("to", Either(&Text, &TEXTS), Becomes("to; of several only the first is ever run")),
            ("condition", Text, Becomes("choose[].when")),
            ("choose", OBJECTS, Becomes("choose")),
        ],
    },
    Section { name: "graph.edge.choose", fields: &[("when", Text, Becomes("when")), ("to", Text, Becomes("to"))] },
    Section { name: "outputs", fields: &[("artifacts", OBJECTS, Becomes("spec.outputs.artifacts"))] },
    Section {
        name: "artifact",
        fields: &[
            ("path", Text, Becomes("path, without a leading ./")),
            ("from", Text, Becomes("from; $TRACE has no equivalent")),
            ("skip_if", Text, Becomes("skipIf, a CEL condition")),
        ],
    },
];

/// Returns a section by its name.
pub(super) fn section(name: &str) -> &'static [(&'static str, Kind, FieldEffect)] {
    SECTIONS.iter().find(|section| section.name == name).map_or(&[], |section| section.fields)
}

/// Returns the kind and the effect of a field, or `None` if the format has no such field.
pub(super) fn field(section_name: &str, field: &str) -> Option<(Kind, FieldEffect)> {
    section(section_name).iter().find(|(name, ..)| *name == field).map(|(_, kind, fate)| (*kind, *fate))
}

/// Returns the field of the section with the most similar name.
pub(super) fn meant(section_name: &str, field: &str) -> Option<&'static str> {
    nearest(field, section(section_name).iter().map(|(name, ..)| *name))
}
