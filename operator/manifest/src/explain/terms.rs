//! The terms of Signoff: verdicts, phases, conditions, reasons and problems, each with a remedy.
//!
//! The terms are defined elsewhere; tests compare this list with their definitions.

/// A term and its meaning.
#[derive(Clone, Copy, Debug)]
pub struct Term {
    /// The term.
    pub word: &'static str,
    /// The kind of the term.
    pub sort: &'static str,
    /// The meaning, and the remedy.
    pub text: &'static str,
}

pub(super) const fn term(sort: &'static str, word: &'static str, text: &'static str) -> Term {
    Term { word, sort, text }
}

const VERDICT: &str = "verdict";
const TIMEOUT: &str = "timeout action";
const RUN: &str = "phase of a Workflow";
const APPROVAL: &str = "phase of an Approval";
const CONDITION: &str = "condition";
const REASON: &str = "reason";
const PROBLEM: &str = "problem of a file";
const GATE: &str = "gate type";
const CONTAINER: &str = "failure of a container";

/// All terms. A term with several meanings is listed several times.
pub const TERMS: &[Term] = &[
    term(
        VERDICT,
        "Approve",
        "Continue with exactly what was shown. It needs as many people as the threshold of the gate.",
    ),
    term(
        VERDICT,
        "Reject",
        "Reject the request. One person suffices, unless rejectPolicy is threshold. The run ends as Rejected, or continues if onReject is continue.",
    ),
    term(
        VERDICT,
        "Modify",
        "Continue with the given parameters instead of what was shown. Allowed if a step is reviewed.",
    ),
    term(VERDICT, "Respond", "Answer with a text or the form, which becomes the gate's response."),
    term(
        VERDICT,
        "Defer",
        "Run the reviewed steps again with the guidance, then ask people again, at most three times more.",
    ),
    term(
        VERDICT,
        "Escalate",
        "Ask more people. The Approval stays open, its timers restart, and recorded votes still count.",
    ),
    term(
        "rule of a gate",
        "quorum",
        "How many different people must agree, and who: `threshold` and `requiredFrom` of a gate, and what policies add. Votes count together where verdict and content are the same. An Approval lists all of them in spec.request.quorums.",
    ),
    term(
        GATE,
        "step",
        "A step with `hitl`, or a gate of spec.gates without a type that the pattern names: people are asked when the run reaches it.",
    ),
    term(
        GATE,
        "planApproval",
        "Asks about the route of a router, or the parts of an orchestrator, before they run. Write it in spec.gates as `type: planApproval`.",
    ),
    term(
        GATE,
        "stepStart",
        "Asks before a pod, http or mcp step starts, and shows exactly what will run. `steps` names the steps; without it, all of them.",
    ),
    term(
        GATE,
        "outputValidation",
        "Asks about the answer of a step: always at the steps it names; without `steps`, if an answer does not fit its outputSchema.",
    ),
    term(
        GATE,
        "errorEscalation",
        "Asks what to do about a step that failed or whose outcome is unknown, with `onError: escalate` or named by the gate, after `afterAttempts` attempts.",
    ),
    term(
        GATE,
        "toolExecution",
        "Asks about every call of a tool, except those of `allowedTools`. It always asks about a tool that an entry `!name` names.",
    ),
    term(GATE, "specificTools", "Asks about the calls of the tools in `tools`, by name or glob."),
    term(
        GATE,
        "destructiveActions",
        "Asks about the calls of tools whose effects are not `read`. Missing effects count as irreversible.",
    ),
    term(GATE, "custom", "Asks about calls for which `condition` is true or cannot be evaluated."),
    term(
        GATE,
        "question",
        "Asks people what an agent wants to know (`ask-human`). The answer goes to the agent and approves nothing.",
    ),
    term(GATE, "finalResponse", "Asks about the result of the run, files included, before it is released."),
    term(VERDICT, "Abort", "End the whole run as Aborted. One person suffices. Results so far are kept."),
    term(VERDICT, "Skip", "Continue without an answer: the step is recorded as skipped."),
    term(VERDICT, "Retry", "Ask again: this Approval ends, and the gate asks as its next visit."),
    term(TIMEOUT, "Reject", "The deadline passed without a decision: counts as a Reject. The default."),
    term(
        TIMEOUT,
        "Approve",
        "The deadline passed without a decision: the run continues without one. It must be set explicitly, and causes a warning.",
    ),
    term(
        TIMEOUT,
        "Retry",
        "The deadline passed without a decision: the gate asks again, at most three times more, then it rejects.",
    ),
    term(
        TIMEOUT,
        "Escalate",
        "The deadline passed without a decision: the people of the next level of timeout.escalation are asked too; after the last level it rejects.",
    ),
    term(TIMEOUT, "Abort", "The deadline passed without a decision: the whole run ends."),
    term(TIMEOUT, "Skip", "The deadline passed without a decision: the run continues without an answer."),
    term(
        TIMEOUT,
        "Default",
        "The deadline passed without a decision: the default answers of the form, or timeout.default, are the answer.",
    ),
    term(
        TIMEOUT,
        "Expire",
        "The deadline passed without a decision: the Approval becomes Overdue and stays open for Retry, Reject and Abort alone.",
    ),
    term(RUN, "Pending", "Not reconciled yet, or not accepted: the condition Accepted says why."),
    term(RUN, "Running", "A step is running."),
    term(RUN, "Waiting", "No step is running, and decisions are pending: status.pending names the Approvals."),
    term(
        RUN,
        "Suspended",
        "spec.suspend is true: nothing new starts. Gates can still be decided, and their deadlines run.",
    ),
    term(RUN, "Succeeded", "Ended with success."),
    term(RUN, "Failed", "Ended by an error: status.message says which."),
    term(RUN, "Rejected", "Ended by a Reject, or by a timeout that counts as one."),
    term(RUN, "Aborted", "Ended by an Abort of the whole run."),
    term(RUN, "Cancelled", "Ended by spec.cancel."),
    term(APPROVAL, "Pending", "Open: people are asked."),
    term(APPROVAL, "Overdue", "Its deadline passed, and it stays open for Retry, Reject and Abort."),
    term(APPROVAL, "Approved", "Ended by Approve."),
    term(APPROVAL, "Rejected", "Ended by Reject."),
    term(APPROVAL, "Modified", "Ended by Modify: outcome.parameters says what runs instead."),
    term(APPROVAL, "Responded", "Ended by Respond: outcome.response and outcome.answers say what was answered."),
    term(APPROVAL, "Deferred", "Ended by Defer: the reviewed steps run again, and a new Approval asks."),
    term(APPROVAL, "Skipped", "Ended by Skip."),
    term(APPROVAL, "Aborted", "Ended by Abort, with the whole run."),
    term(APPROVAL, "Retried", "Ended by Retry: a new Approval asks."),
    term(
        APPROVAL,
        "Expired",
        "Ended by its timeout: outcome.verdict is the verdict that it counts as, and outcome.source is Timeout.",
    ),
    term(APPROVAL, "Cancelled", "Ended with its Workflow: nothing can be decided any more."),
    term(
        APPROVAL,
        "Superseded",
        "Ended because it could not be trusted any more, for example because votes were given while the admission policies were not in force. Its gate asks again under a new name: decide that one.",
    ),
    term(
        CONDITION,
        "Accepted",
        "Whether the spec can be run. Where it is False, its message lists everything that is wrong: correct the file, check it with `signoff validate`, and apply it under another name or delete the Workflow first.",
    ),
    term(
        CONDITION,
        "Guarded",
        "Listed as False while the admission policies that verify decisions are not in force; no decision counts then.",
    ),
    term(
        CONDITION,
        "ForeignMutation",
        "Whether a webhook or a mutating admission policy that Signoff did not install can change a vote before it is stored; the message names it.",
    ),
    term(
        CONDITION,
        "ClockSkewed",
        "Whether the clock of the operator's machine differs from the API server's by more than 5 seconds. Deadlines and times are the API server's.",
    ),
    term(
        CONDITION,
        "Held",
        "Whether an approval policy, or other rules of this version of Signoff, keep the run from starting anything new.",
    ),
    term(
        CONDITION,
        "Restored",
        "Listed while the run is a copy from a backup (`spec.restored`, or a status that began before the object was created): it starts nothing and never continues.",
    ),
    term(CONDITION, "Waiting", "Whether an Approval of the run is open."),
    term(
        CONDITION,
        "PodsPending",
        "Whether a step's Pod does not run yet; the message names the Pod and has the reason from the scheduler or the kubelet.",
    ),
    term(
        CONDITION,
        "CallsPending",
        "Whether a step waits because the limit of concurrent calls of models and addresses is reached; the message names the step and the limit. The step starts when a slot is free.",
    ),
    term(
        CONDITION,
        "Stalled",
        "Whether the operator has failed for a minute at the same operation; the message has the API server's error. The operator retries until it succeeds: change what refuses the operation, such as a quota or a webhook.",
    ),
    term(
        CONDITION,
        "Quarantined",
        "Whether the object is quarantined because the evaluation of its text was stopped. The operator retries after a minute to an hour, and at once with a new generation or another version of the operator. Cancel, suspend and delete work meanwhile.",
    ),
    term(
        CONDITION,
        "ValueUnavailable",
        "Whether the run is blocked because a large value of it cannot be read or stored; the message names the Blob and the remedy.",
    ),
    term(CONDITION, "Finished", "Whether the run has ended, with or without success; its reason is the phase."),
    term(CONDITION, "Complete", "Whether the run ended with success; its reason is the phase."),
    term(CONDITION, "Failed", "Whether the run ended without success; its reason is the phase."),
    term(CONDITION, "Decided", "Whether an Approval has ended; its reason is the phase."),
    term(CONDITION, "Undecidable", "No verdict can reach its quorum any more: the timeout's action follows at once."),
    term(
        CONDITION,
        "Notified",
        "Listed as False while notices about an open Approval do not reach a channel; the message names the channel and has the reason. The Approval itself can be decided as always.",
    ),
    term(REASON, "Accepted", "The spec can be run."),
    term(
        REASON,
        "Invalid",
        "The spec cannot be run: the message names each field and what to write instead. `signoff validate` shows the same with the place in the file.",
    ),
    term(
        REASON,
        "TooLarge",
        "The spec and its inputs have more bytes than the operator allows (--max-workflow-bytes, 512 KiB by default). Let a step fetch what is large, or split the Workflow.",
    ),
    term(
        REASON,
        "TooCostly",
        "Evaluating the text took more CPU time than the limit. Simplify what the message names.",
    ),
    term(
        REASON,
        "NotStopped",
        "Evaluating the text took more CPU time than the limit and could not be stopped. Simplify it.",
    ),
    term(REASON, "EndedOperator", "The process of the operator ended twice while it evaluated the text. Simplify it."),
    term(REASON, "Panicked", "The evaluation of the text panicked, which is a bug of Signoff: report it."),
    term(
        REASON,
        "ValueMissing",
        "A large value of the run is missing. No backup tool can write its Blob, so the run cannot continue: check what it has done, run it again (`kubectl approve rerun NAME`), and delete it.",
    ),
    term(
        REASON,
        "ValueDamaged",
        "A large value of the run has another digest than the run wrote. No backup tool can write its Blob, so the run cannot continue: find out who changed it, run it again (`kubectl approve rerun NAME`), and delete it.",
    ),
    term(
        REASON,
        "NamesTaken",
        "Blobs that the run did not create have the names of too many of its large values. Delete those Blobs.",
    ),
    term(REASON, "Forbidden", "The API server refuses a write: the message names the quota, policy or right."),
    term(REASON, "Refused", "The API server refuses a write: the message says why."),
    term(REASON, "TooManyRequests", "The API server is too busy for a write. The operator retries."),
    term(
        REASON,
        "ServerError",
        "The API server, or a webhook that it calls, fails at a write: the message has its error.",
    ),
    term(REASON, "NoAnswer", "The API server does not answer a request about this object."),
    term(
        REASON,
        "ForeignObject",
        "An object that the run did not create has the name of one of its objects; the message names it. Rename or delete it.",
    ),
    term(REASON, "InternalError", "A bug of the operator: report it with the message."),
    term(REASON, "NotCreated", "A Pod cannot be created for a minute: the message has the API server's error."),
    term(
        REASON,
        "RequesterIsMachine",
        "A gate excludes the requester, and a service account created the Workflow, so there is no person to exclude. Set spec.requestedFor to the person for whom it acts; its creator needs the verb `delegate` on that person.",
    ),
    term(
        REASON,
        "RequesterUnverified",
        "The requester cannot be verified, because the Workflow was created while the admission policies were not in force. Create it again.",
    ),
    term(
        REASON,
        "PolicyConflict",
        "A gate cannot meet every approval policy that applies to it, for example because they require more approvers than there are. The message names the policies: change the gate, or ask their administrators to change them.",
    ),
    term(
        REASON,
        "NotAllowed",
        "An approval policy does not allow a host, a Secret or a provider. Use one that the message lists, or ask the administrator to add it.",
    ),
    term(
        REASON,
        "TooManyExcluded",
        "A gate excludes those who decided or edited before, and they are more than the 32 people whom a request can name. The run waits. Cancel it and exclude the deciders of fewer gates, or ask the administrator of the policy.",
    ),
    term(
        REASON,
        "PolicyUnknown",
        "The approval policies of the namespace, or its labels, cannot be read. Nothing new starts until they can.",
    ),
    term(
        REASON,
        "SpecTampered",
        "The spec was changed after it was accepted, past the admission policies. The run ends: create a new one.",
    ),
    term(
        REASON,
        "OldShape",
        "The run was accepted by an older version, with its steps within `spec.pattern`. It does nothing any more, and does not end by itself: cancel or delete it, write the Workflow with its steps in `spec.steps` and apply it again.",
    ),
    term(
        REASON,
        "OldRules",
        "The run was accepted under another meaning of Workflows than that of this version: `status.rules` has the number (absent: 1). Nothing starts, and votes on its Approvals are stored and not counted. Cancel it (`kubectl approve cancel NAME`), check what it has done, and start it anew (`kubectl replace --force -f FILE`). Suspend and delete work too.",
    ),
    term(
        REASON,
        "NotResumed",
        "The run was created from a backup, which cannot tell what the run did afterwards. Nothing starts, whatever `spec.suspend` says. Cancel it (`kubectl approve cancel NAME`), or check by hand what it has done and run it again (`kubectl approve rerun NAME --backup FILE`).",
    ),
    term(
        REASON,
        "Unreadable",
        "The object cannot be read, such as one that was written for another version of the CRD.",
    ),
    term(
        REASON,
        "ApprovalUnreadable",
        "An Approval of the run cannot be read by this version of the operator: update the operator, or delete the Workflow and apply it again.",
    ),
    term(
        REASON,
        "PoliciesDiffer",
        "An admission policy is missing or was changed. `kubectl approve doctor` says which; install the chart again.",
    ),
    term(
        REASON,
        "ExternalMutatorFound",
        "A webhook or a mutating admission policy that Signoff did not install matches Approvals. The message names it: exclude signoff.dev from it, or remove it.",
    ),
    term(
        REASON,
        "MachineAhead",
        "The clock of the operator's machine is more than 5 seconds ahead of the API server's. No gate ends early; correct the clock of the node.",
    ),
    term(
        REASON,
        "MachineBehind",
        "The clock of the operator's machine is more than 5 seconds behind the API server's. No gate ends late; correct the clock of the node.",
    ),
    term(REASON, "ApprovalPending", "At least one Approval is open: status.pending names them."),
    term(
        REASON,
        "Overdue",
        "The deadline passed without a decision, and the gate waits: decide Retry to have it asked again, Reject or Abort.",
    ),
    term(REASON, "NothingPending", "No Approval is open."),
    term(
        REASON,
        "PodsNotAllowed",
        "The operator must not create Pods in this namespace. An administrator allows it with pods.namespaces of the chart.",
    ),
    term(
        REASON,
        "Queued",
        "The limit of concurrent Pods or calls is reached, and this step waits in the queue. The message has its position.",
    ),
    term(
        REASON,
        "NotScheduled",
        "No scheduler has chosen a node for a Pod for ten seconds, and none says why: check that the cluster's scheduler runs. After pod.startDeadline the step fails.",
    ),
    term(
        REASON,
        "Unschedulable",
        "No node takes a Pod yet: the message has the scheduler's reason. After pod.startDeadline the step fails.",
    ),
    term(
        REASON,
        "ErrImagePull",
        "An image cannot be pulled: the message has the kubelet's error. After pod.startDeadline the step fails.",
    ),
    term(REASON, "ImagePullBackOff", "An image could not be pulled several times: as ErrImagePull."),
    term(
        REASON,
        "CreateContainerConfigError",
        "A container cannot be created as its Pod specifies: the message has the kubelet's error. After pod.startDeadline the step fails.",
    ),
    term(REASON, "QuorumOutOfReach", "The votes that are still possible cannot meet the quorum of any verdict."),
    term(
        REASON,
        "NotDelivered",
        "A notice has failed for a minute. The operator tries again for a day; `kubectl approve doctor --notify NAME` says what is wrong with the channel.",
    ),
    term(
        REASON,
        "GivenUp",
        "A channel refused a notice for good, or it failed for a day, so it is not tried again. Tell the approvers in another way; `kubectl approve doctor --notify NAME` says what is wrong with the channel.",
    ),
    term(
        REASON,
        "UnknownChannel",
        "`hitl.notify` of the gate names a channel that the administrator has not configured. Correct the name for the next run, or ask the administrator to add the channel.",
    ),
    term(
        REASON,
        "ChannelNotAllowed",
        "`hitl.notify` of the gate names a channel to which authors cannot add, or that takes no notices of this namespace. Leave it out, or ask the administrator to set `authors: true` at the channel.",
    ),
    term(
        CONTAINER,
        "ExitCode",
        "The container ended with a code other than 0: its log says why. Let `retry.onExitCodes` name the codes after which another attempt makes sense.",
    ),
    term(
        CONTAINER,
        "OOMKilled",
        "The container used more memory than its limit. Give it more: resources.limits.memory, or `memory` with Modify at an errorEscalation gate.",
    ),
    term(
        CONTAINER,
        "Evicted",
        "The node was short of resources, or was drained, and ended the Pod. `retry: {onReasons: [Evicted]}` runs it again; use it if the step can be repeated.",
    ),
    term(
        CONTAINER,
        "DeadlineExceeded",
        "The container ran longer than pod.activeDeadline: the kubelet ended it. Raise it, or give the container less to do.",
    ),
    term(
        CONTAINER,
        "Timeout",
        "One attempt took longer than the step's timeout. The Pod is deleted; raise the timeout, or give it less to do.",
    ),
    term(
        CONTAINER,
        "ErrImagePull",
        "The image could not be pulled: its name is wrong, its registry is not reached, or a pull secret is missing (podTemplate.spec.imagePullSecrets).",
    ),
    term(CONTAINER, "ImagePullBackOff", "The image could not be pulled several times: as ErrImagePull."),
    term(CONTAINER, "ErrImageNeverPull", "imagePullPolicy is Never, and the node does not have the image."),
    term(CONTAINER, "InvalidImageName", "The image's name is invalid: correct pod.image."),
    term(
        CONTAINER,
        "CreateContainerConfigError",
        "The container cannot be created as the Pod specifies: a Secret, a ConfigMap or a key of one is missing, or the image runs as root and runAsUser is not set.",
    ),
    term(
        CONTAINER,
        "Unschedulable",
        "No node takes the Pod: its resources, nodeSelector, tolerations or volumes require what no node has free.",
    ),
    term(
        CONTAINER,
        "Deleted",
        "Another client deleted the Pod before its container finished. Find out which; Retry runs it again.",
    ),
    term(CONTAINER, "StartError", "Its command cannot be run: correct pod.command, or use an image that has it."),
    term(CONTAINER, "ContainerCannotRun", "Its command cannot be run: as StartError."),
    term(
        CONTAINER,
        "Input",
        "The input of the step could not be rendered, or is larger than the limit of a variable (64 KiB), of its files (192 KiB) or of the whole step (384 KiB).",
    ),
    term(
        CONTAINER,
        "OutcomeUnknown",
        "The Pod was deleted and its final state was not observed: the step may have done its work. It is never repeated automatically, unless it is idempotent. Check what was done, then decide at the errorEscalation gate.",
    ),
    term(
        CONTAINER,
        "Refused",
        "The API server refused to create the Pod: a quota, Pod Security admission or another policy. The message has its error.",
    ),
    term(
        CONTAINER,
        "ForeignPod",
        "A Pod with the step's name exists that this run did not create. It is neither used nor deleted: find out who created it.",
    ),
    term(
        CONTAINER,
        "InitFailed",
        "An init container of podTemplate failed, so the step's own container never ran. The message has its name, exit code and error.",
    ),
    term(
        CONTAINER,
        "NotStarted",
        "The container did not start within pod.startDeadline, and neither the scheduler nor the kubelet said why: examine the node.",
    ),
    term(CONTAINER, "LogUnreadable", "The log is the response, and could not be read from its node: examine the node."),
    term(
        CONTAINER,
        "TooLarge",
        "The response of a step is larger than its limit, which the message names: 900 KiB, of a container 4096 bytes as termination message or 256 KiB of log, or what the quota for long values of its Workflow or namespace leaves. Answer less, or with a reference.",
    ),
    term(
        PROBLEM,
        "NotYaml",
        "The document cannot be read as YAML or JSON at all. Other documents of the file are checked nevertheless.",
    ),
    term(PROBLEM, "NotStrands", "The file looks like one of the Strands CLI and lacks what such a file needs."),
    term(PROBLEM, "NotOurs", "The object is of a kind that Signoff does not know: it was not checked."),
    term(PROBLEM, "UnknownKind", "apiVersion or kind is not one of Signoff's."),
    term(
        PROBLEM,
        "UnknownField",
        "There is no field of that name here. kubectl refuses it; other clients may let the API server drop it with a warning only.",
    ),
    term(PROBLEM, "MissingField", "A field that is always needed is missing."),
    term(PROBLEM, "WrongType", "A value is not of the type of its field, such as a number in a text field."),
    term(PROBLEM, "WrongForm", "A text has the wrong form, such as a name with capital letters."),
    term(PROBLEM, "OutOfBounds", "A value is too long, too short, too large or too small."),
    term(PROBLEM, "NotOneOf", "A value is not one of the allowed values."),
    term(PROBLEM, "Duplicate", "Two items of a list have the same name."),
    term(PROBLEM, "RuleBroken", "A rule between several fields is broken, which the API server checks too."),
    term(
        PROBLEM,
        "KubectlRefuses",
        "kubectl cannot read this line, although it is valid YAML: put the text in quotes.",
    ),
    term(
        PROBLEM,
        "NotChecked",
        "The rules for the whole Workflow were not checked, because some of its fields cannot be read: correct those first.",
    ),
    term(
        PROBLEM,
        "InputRequired",
        "A required input has no value in the file. Set it in the file, or with `--var` when you run it.",
    ),
    term(PROBLEM, "Suspicious", "The file is valid, but probably does not do what its author meant."),
    term(
        PROBLEM,
        "Unsupported",
        "The file asks for something that has no equivalent: the run would do something else.",
    ),
];
