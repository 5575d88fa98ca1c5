//! The meanings of the classes of errors in `status.steps[].error.class`, each with a remedy. The classes of containers
//! are in `terms.rs`.

use signoff_api::FailureClass;

use super::terms::{Term, term};

/// Returns the classes of errors.
pub(super) fn classes() -> impl Iterator<Item = Term> {
    FailureClass::ALL.into_iter().map(|class| term("class of an error", class.name(), meaning(class)))
}

fn meaning(class: FailureClass) -> &'static str {
    match class {
        FailureClass::Arguments => {
            "A call was refused, because its arguments are not JSON or do not fit the schema of the tool. The agent was told why."
        }
        FailureClass::Auth => "The server refused the credentials (401 or 403): check the key that was sent.",
        FailureClass::Cancelled => "The run ended while the call was in flight.",
        FailureClass::Condition => {
            "A `skipIf`, or the condition of an edge, cannot be evaluated, so nothing of the step runs, and no `retry` covers it. The message names the condition: ask with `has(…)` for a field that can be missing. At an errorEscalation gate people can skip the step or end the run, but not run it."
        }
        FailureClass::Failed => "The step failed, and its class is not known: its message and its log say why.",
        FailureClass::Input => {
            "What the step is given, or what a gate would show, is empty, too large or not allowed: the message says which."
        }
        FailureClass::Internal => "A bug of Signoff: report it with the message.",
        FailureClass::Invalid => {
            "The request itself is wrong, such as its URL, a header or the configuration of a provider. Nothing was sent. Correct what the message names."
        }
        FailureClass::Journal => {
            "The record of the step does not fit what its spec says, so the step cannot go on: the journal was changed, or this is a bug of Signoff."
        }
        FailureClass::Limit => {
            "Calls were refused, because a turn has more calls than are made (32), `limits.calls` of an agent is reached, or the message of the model was cut. One record stands for all such calls of the turn."
        }
        FailureClass::Malformed => {
            "The answer of a step does not fit its outputSchema, or cannot be read. Let its prompt say what is wanted, or let an outputValidation gate ask people."
        }
        FailureClass::NoTool => {
            "A call was refused, because the agent does not have a tool of that name. The agent was told which it has."
        }
        FailureClass::NotAllowed => {
            "An approval policy does not allow the rendered call, such as its host, Secret or image. Use one that the message lists, or ask the administrator to add it. Or a call of a server's tool may change something, and no gate asks about it: add a gate, pin its definition, or list it in `read` of the server if it changes nothing."
        }
        FailureClass::OutcomeUnknown => {
            "A call began and its result was not recorded, because the process that made it stopped: the call may or may not have happened. It is never repeated automatically, unless it is idempotent. Check what was done, then decide at the errorEscalation gate."
        }
        FailureClass::Panic => {
            "The code of Signoff that makes the call has failed: a bug of Signoff. Report it with the message. Whether the call had its effect is not certain."
        }
        FailureClass::Protocol => {
            "The connection broke, or the answer is not what the protocol promises: the message says which."
        }
        FailureClass::RateLimited => "The server asks to slow down (429). `retry` waits as long as the server says.",
        FailureClass::Refused => {
            "Nothing was sent: an address is not allowed, a Secret is not meant for this host, or a provider declined to answer. Of a call: people rejected it before, or it is equal to one that was not made."
        }
        FailureClass::Rejected => "A person rejected the answer of the step.",
        FailureClass::Repeated => {
            "A call was not made again: an equal call was made before, and no gate asks whether it is made again. The agent got the earlier result. `repeatable: true` of the tool lets it be made again."
        }
        FailureClass::Status => {
            "The server answered with a status that is not expected. `expect` of the step lists others."
        }
        FailureClass::Template => "A template cannot be rendered: the message names the field and what is missing.",
        FailureClass::Timeout => {
            "No complete answer came within the timeout of the step. Whether the call had its effect is not certain."
        }
        FailureClass::TooCostly => {
            "Evaluating the input or the answer of the step took more CPU time than the limit. Simplify what the message names."
        }
        FailureClass::ToolChanged => {
            "A tool of a server has another definition than the one that people approved, that is pinned or that a policy reviewed, so the call was not sent. The catalogue is read again, and gates ask about the new definition. After four catalogues in a run the step fails."
        }
        FailureClass::ToolMissing => {
            "A server has no tool of a name that a step, an agent or a gate lists: correct the name, or the server."
        }
        FailureClass::TooLarge => {
            "The answer is larger than its limit, which the message names. Answer less, or with a reference."
        }
        FailureClass::TurnLimit => {
            "The agent still calls tools in its last turn. Raise `limits.turns` of the agent, or change its instructions."
        }
        FailureClass::Unreachable => "No connection came about: the name, the address or TLS failed. Nothing was sent.",
    }
}
