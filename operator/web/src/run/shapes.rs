//! The shapes of states. Each tone has a shape, so that states can be distinguished without colors.

use signoff_api::workflow::WorkflowPhase;
use signoff_review::run::Tone;

/// Returns the CSS class of a tone.
pub fn class(tone: Tone) -> &'static str {
    match tone {
        Tone::Good => "good",
        Tone::Bad => "bad",
        Tone::Busy => "busy",
        Tone::Attention => "attention",
        Tone::Quiet => "quiet",
    }
}

/// Returns the SVG path of the shape of a class, 16 by 16.
pub fn shape(class: &str) -> &'static str {
    match class {
        // A tick.
        "good" => "M2 8.5 6.5 13 14 3.5",
        // A cross.
        "bad" => "M3 3 13 13M13 3 3 13",
        // An arrow ahead.
        "busy" => "M3 2.5 13 8 3 13.5Z",
        // A clock.
        "attention" => "M8 1.5A6.5 6.5 0 1 1 7.9 1.5ZM8 4.5V8.3L10.6 10",
        // A dash.
        _ => "M3 8H13",
    }
}

/// Returns the tone of a phase.
pub fn tone(phase: WorkflowPhase) -> Tone {
    match phase {
        WorkflowPhase::Succeeded => Tone::Good,
        WorkflowPhase::Failed | WorkflowPhase::Rejected | WorkflowPhase::Aborted => Tone::Bad,
        WorkflowPhase::Running => Tone::Busy,
        WorkflowPhase::Waiting | WorkflowPhase::Suspended => Tone::Attention,
        WorkflowPhase::Pending | WorkflowPhase::Cancelled => Tone::Quiet,
    }
}
