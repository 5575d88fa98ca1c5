//! Every field of a workflow file of the Strands CLI, and what becomes of it.
//!
//! The importer takes no field that is not listed here, and the documentation lists each of them: tests hold both.

use crate::nearest::nearest;

/// What becomes of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is kept, here.
    Becomes(&'static str),
    /// It has no effect on what a run does: it is told and left out.
    LeftOut(&'static str),
    /// There is nothing like it: the run would do something else, which is told.
    Missing(&'static str),
}

use Fate::{Becomes, LeftOut, Missing};

/// The fields of one kind of object.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// What the objects are called in the documentation.
    pub name: &'static str,
    /// Each field and its fate.
    pub fields: &'static [(&'static str, Fate)],
}

/// Every kind of object of the format.
pub const SECTIONS: &[Section] = &[
    Section {
        name: "file",
        fields: &[
            ("version", LeftOut("every version is read alike")),
            ("name", Becomes("metadata.name, as a DNS label")),
            ("description", Becomes("the annotation kubernetes.io/description")),
            ("tags", Becomes("the annotation import.signoff.dev/tags")),
            ("runtime", Becomes("spec.providers, spec.agents, limits")),
            ("inputs", Becomes("spec.inputs")),
            ("env", LeftOut("secrets and folders are the cluster's, or the environment's")),
            ("telemetry", LeftOut("the operator's own telemetry is configured where it is installed")),
            ("context_policy", Becomes("nothing but notes on its fields")),
            ("skills", Missing("agents load no skills")),
            ("tools", Missing("agents call no tools")),
            ("agents", Becomes("spec.agents")),
            ("pattern", Becomes("spec.pattern")),
            ("outputs", Becomes("spec.outputs")),
            ("security", LeftOut("what may be called is the administrator's to say: see floors")),
        ],
    },
    Section {
        name: "runtime",
        fields: &[
            ("provider", Becomes("spec.providers: OpenAI's protocol at the provider's address")),
            ("model_id", Becomes("spec.agents[].model")),
            ("host", Becomes("spec.providers[].openai.baseURL")),
            ("region", Becomes("part of spec.providers[].openai.baseURL for bedrock")),
            ("temperature", Becomes("spec.agents[].temperature")),
            ("top_p", LeftOut("the provider's own default holds")),
            ("max_tokens", Becomes("spec.agents[].maxTokens")),
            ("max_parallel", Becomes("maxParallel of dag and parallel, maxWorkers of orchestratorWorkers")),
            ("budgets", Becomes("spec.activeDeadline and graph.maxSteps")),
            ("failure_policy", Becomes("retry of every step of an agent")),
            ("webhooks", LeftOut("nobody is called when a gate asks: watch Approvals instead")),
        ],
    },
    Section {
        name: "runtime.budgets",
        fields: &[
            ("max_steps", Becomes("graph.maxSteps; other patterns have no loops without a bound")),
            ("max_tokens", LeftOut("tokens are counted and not limited")),
            ("max_duration_s", Becomes("spec.activeDeadline, which does not count the time people take")),
            ("warn_threshold", LeftOut("there is nothing to warn of")),
        ],
    },
    Section {
        name: "runtime.failure_policy",
        fields: &[
            ("retries", Becomes("retry.limit")),
            ("backoff", Becomes("retry.backoff.factor and jitter")),
            ("wait_min", Becomes("retry.backoff.base")),
            ("wait_max", Becomes("retry.backoff.max")),
        ],
    },
    Section {
        name: "context_policy",
        fields: &[
            ("compaction", LeftOut("conversations are kept whole")),
            ("notes", Missing("no notes are kept between steps")),
            ("retrieval", Missing("agents call no tools")),
        ],
    },
    Section {
        name: "inputs",
        fields: &[
            ("required", Becomes("inputs with required: true")),
            ("optional", Becomes("inputs with required: false")),
            ("values", Becomes("spec.inputs[].value, and inputs of their type where none is declared")),
        ],
    },
    Section {
        name: "input",
        fields: &[
            ("type", Becomes("spec.inputs[].type")),
            ("description", Becomes("spec.inputs[].description")),
            ("default", Becomes("spec.inputs[].default")),
            ("enum", Becomes("spec.inputs[].enum")),
        ],
    },
    Section {
        name: "agent",
        fields: &[
            ("prompt", Becomes("spec.agents[].system")),
            (
                "tools",
                Missing("the agent calls no tools; their names are kept in the annotation import.signoff.dev/tools"),
            ),
            ("provider", Becomes("spec.agents[].provider")),
            ("model_id", Becomes("spec.agents[].model")),
            ("inference", Becomes("spec.agents[].temperature and maxTokens")),
            ("input_schema", LeftOut("what an agent is told is text")),
            ("output_schema", Becomes("outputSchema of its steps, where it stands in the file")),
            ("$ref", Missing("other files are not read: copy the agent's prompt into this file")),
        ],
    },
    Section {
        name: "agent.inference",
        fields: &[
            ("temperature", Becomes("spec.agents[].temperature")),
            ("top_p", LeftOut("the provider's own default holds")),
            ("max_tokens", Becomes("spec.agents[].maxTokens")),
        ],
    },
    Section {
        name: "step, task or node",
        fields: &[
            ("id", Becomes("name, as a DNS label; references follow")),
            ("agent", Becomes("agent.name")),
            ("input", Becomes("agent.input")),
            ("vars", Becomes("vars")),
            ("tool_overrides", Missing("the agent calls no tools")),
            ("deps", Becomes("deps of a dag's task")),
            ("dependencies", Becomes("deps of a dag's task")),
            ("description", LeftOut("steps have no description")),
            ("skip_if", Becomes("skipIf, a CEL condition")),
            ("manual_gate", Missing("tools are not asked about, as there are none")),
            ("type", Becomes("a gate where it is hitl")),
        ],
    },
    Section {
        name: "hitl step",
        fields: &[
            ("id", Becomes("name, as a DNS label; references follow")),
            ("type", Becomes("hitl")),
            ("prompt", Becomes("hitl.prompt")),
            ("context_display", Becomes("hitl.contextDisplay")),
            ("default", Becomes("the default of hitl.form, and what a timeout answers")),
            ("timeout_seconds", Becomes("hitl.timeout")),
            ("validation", Becomes("hitl.form")),
            ("skip_if", Becomes("skipIf, a CEL condition; a review position cannot be skipped")),
            ("required_approvers", Becomes("hitl.approvers")),
            ("approval_threshold", Becomes("hitl.threshold")),
            ("deps", Becomes("deps of a dag's task")),
            ("dependencies", Becomes("deps of a dag's task")),
            ("description", LeftOut("steps have no description")),
        ],
    },
    Section {
        name: "hitl.validation",
        fields: &[
            ("pattern", Becomes("hitl.form.questions[].pattern")),
            ("error_message", Becomes("hitl.form.questions[].errorMessage")),
        ],
    },
    Section {
        name: "pattern",
        fields: &[("type", Becomes("the name of the pattern")), ("config", Becomes("its fields"))],
    },
    Section { name: "chain", fields: &[("steps", Becomes("chain.steps"))] },
    Section { name: "workflow", fields: &[("tasks", Becomes("dag.tasks"))] },
    Section {
        name: "routing",
        fields: &[
            ("router", Becomes("routing.router")),
            ("routes", Becomes("routing.routes")),
            ("review_router", Becomes("routing.router.review")),
        ],
    },
    Section {
        name: "routing.router",
        fields: &[
            ("agent", Becomes("routing.router.agent")),
            ("input", Becomes("routing.router.input")),
            ("max_retries", Becomes("routing.router.maxRetries")),
            ("review_router", Becomes("routing.router.review")),
        ],
    },
    Section {
        name: "route",
        fields: &[("then", Becomes("routing.routes[].steps")), ("steps", Becomes("routing.routes[].steps"))],
    },
    Section {
        name: "parallel",
        fields: &[("branches", Becomes("parallel.branches")), ("reduce", Becomes("parallel.reduce"))],
    },
    Section {
        name: "evaluator_optimizer",
        fields: &[
            ("producer", Becomes("evaluatorOptimizer.producer")),
            ("evaluator", Becomes("evaluatorOptimizer.evaluator")),
            ("accept", Becomes("evaluatorOptimizer.accept")),
            ("revise_prompt", Becomes("evaluatorOptimizer.revisePrompt")),
            ("review_gate", Becomes("evaluatorOptimizer.reviewGate")),
        ],
    },
    Section {
        name: "evaluator_optimizer.evaluator",
        fields: &[("agent", Becomes("evaluator.agent")), ("input", Becomes("evaluator.input"))],
    },
    Section {
        name: "evaluator_optimizer.accept",
        fields: &[("min_score", Becomes("accept.minScore")), ("max_iters", Becomes("accept.maxIterations"))],
    },
    Section {
        name: "orchestrator_workers",
        fields: &[
            ("orchestrator", Becomes("orchestratorWorkers.orchestrator")),
            ("decomposition_review", Becomes("orchestratorWorkers.decompositionReview")),
            ("worker_template", Becomes("orchestratorWorkers.worker")),
            ("reduce_review", Becomes("orchestratorWorkers.reduceReview")),
            ("reduce", Becomes("orchestratorWorkers.reduce")),
            ("writeup", Becomes("orchestratorWorkers.writeup")),
        ],
    },
    Section {
        name: "orchestrator_workers.orchestrator",
        fields: &[
            ("agent", Becomes("orchestrator.agent")),
            ("input", Becomes("orchestrator.input")),
            ("limits", Becomes("orchestrator.maxWorkers")),
        ],
    },
    Section {
        name: "orchestrator_workers.orchestrator.limits",
        fields: &[("max_workers", Becomes("orchestrator.maxWorkers")), ("max_rounds", LeftOut("work is divided once"))],
    },
    Section {
        name: "orchestrator_workers.worker_template",
        fields: &[
            ("agent", Becomes("worker.agent")),
            ("input", Becomes("worker.input")),
            ("tools", Missing("workers call no tools")),
        ],
    },
    Section {
        name: "graph",
        fields: &[
            ("nodes", Becomes("graph.nodes, also where they are a map")),
            ("edges", Becomes("graph.edges: those of one node are tried in their order")),
            ("entry", Becomes("graph.entry")),
            ("max_iterations", Becomes("graph.maxIterations")),
        ],
    },
    Section {
        name: "graph.edge",
        fields: &[
            ("from", Becomes("from")),
            ("to", Becomes("to; of several only the first is ever run")),
            ("condition", Becomes("choose[].when")),
            ("choose", Becomes("choose")),
        ],
    },
    Section { name: "graph.edge.choose", fields: &[("when", Becomes("when")), ("to", Becomes("to"))] },
    Section { name: "outputs", fields: &[("artifacts", Becomes("spec.outputs.artifacts"))] },
    Section {
        name: "artifact",
        fields: &[
            ("path", Becomes("path, without a leading ./")),
            ("from", Becomes("from; $TRACE has no equivalent")),
            ("skip_if", Becomes("skipIf, a CEL condition")),
        ],
    },
];

/// A section by its name.
pub(super) fn section(name: &str) -> &'static [(&'static str, Fate)] {
    SECTIONS.iter().find(|section| section.name == name).map_or(&[], |section| section.fields)
}

/// The fate of a field; none where the format has no such field.
pub(super) fn fate(section_name: &str, field: &str) -> Option<Fate> {
    section(section_name).iter().find(|(name, _)| *name == field).map(|(_, fate)| *fate)
}

/// The field of the section that was perhaps meant.
pub(super) fn meant(section_name: &str, field: &str) -> Option<&'static str> {
    nearest(field, section(section_name).iter().map(|(name, _)| *name))
}
