//! The operators of templates, each charged before it runs.
//!
//! The template engine compiles operators to instructions that read their whole operands, whatever their size. Before
//! each of these, two instructions are inserted: one passes the operands to a filter of ours, which charges for them,
//! and one puts them back. The operator itself is that of the engine. Values that would be computed again at every
//! iteration, such as a slice of a slice, are collected when they are created.

use minijinja::machinery::{Instruction, Instructions};
use minijinja::value::{Rest, ValueKind};
use minijinja::{Environment, Error, State, Value};

use super::meter::{Charge, Meter, assert_valid, count_output};

/// The charging filters, with names that no template can call.
const CHARGES: [(&str, Charge); 10] = [
    (COMPARE, |meter, operands| match operands {
        [a, b] => meter.charge_comparison(a, b),
        _ => charge_all(meter, operands),
    }),
    (IN, |meter, operands| match operands {
        [item, container] => meter.charge_containment(item, container),
        _ => charge_all(meter, operands),
    }),
    (CHAIN, |meter, operands| match operands {
        [a, b] => meter.charge_comparison(a, b).and_then(|()| meter.charge_containment(a, b)),
        _ => charge_all(meter, operands),
    }),
    (CONCAT, charge_all),
    (ADD, |meter, operands| operands.iter().try_for_each(|value| meter.charge_shallow(value))),
    // The key is hashed, or compared with names. A text or an iterable is walked up to the item.
    (ITEM, |meter, operands| {
        operands.get(1).map_or(Ok(()), |key| meter.charge_deep(key))?;
        let walked = |value: &&Value| matches!(value.kind(), ValueKind::String | ValueKind::Iterable);
        operands.first().filter(walked).map_or(Ok(()), |value| meter.charge_shallow(value))
    }),
    (MAP, |meter, operands| operands.iter().step_by(2).try_for_each(|key| meter.charge_deep(key))),
    // A text is cut by characters, which have up to four bytes.
    (SLICE, |meter, operands| {
        operands.first().map_or(Ok(()), |value| meter.charge_bytes(value.as_str().map_or(0, str::len) * 4))
    }),
    (LOOP, |meter, operands| operands.iter().try_for_each(|value| meter.charge_shallow(value))),
    (CHANGED, |meter, operands| operands.iter().skip(1).try_for_each(|value| meter.charge_deep(value))),
];
const COMPARE: &str = "charge_compare";
const IN: &str = "charge_in";
const CHAIN: &str = "charge_chain";
const CONCAT: &str = "charge_concat";
const ADD: &str = "charge_add";
const ITEM: &str = "charge_item";
const MAP: &str = "charge_map";
const SLICE: &str = "charge_slice";
const LOOP: &str = "charge_loop";
const CHANGED: &str = "charge_changed";
/// Counts the template's own text before it is written.
const RAW: &str = "charge_raw";
/// Collects a value that would be computed again at every iteration.
const COLLECT: &str = "charge_collect";
/// Refuses a number that cannot be read in the result of a filter or method.
const VALID: &str = "charge_valid";
/// The index by which the engine finds a filter by its name.
const BY_NAME: u8 = !0;

fn charge_all(meter: &mut Meter, operands: &[Value]) -> Result<(), Error> {
    operands.iter().try_for_each(|value| meter.charge_deep(value))
}

/// Adds the filters that the instructions of [`add_charging_instructions`] call.
pub(super) fn add_charges(env: &mut Environment<'static>) {
    for (name, charge) in CHARGES {
        env.add_filter(name, move |state: &mut State, operands: Rest<Value>| {
            Meter::run(state, |meter| charge(meter, &operands)).map(|()| {
                // The first element of an unpacked list ends on top of the stack.
                operands.0.iter().rev().cloned().collect::<Value>()
            })
        });
    }
    env.add_filter(RAW, |state: &mut State, bytes: usize| count_output(state, bytes));
    env.add_filter(VALID, |value: Value| assert_valid(&value).map(|()| value));
    env.add_filter(COLLECT, |state: &mut State, value: Value| collect_elements(state, value));
}

/// Returns the value with its elements computed.
pub(super) fn collect_elements(state: &mut State, value: Value) -> Result<Value, Error> {
    if value.kind() != ValueKind::Iterable {
        return Ok(value);
    }
    let mut items = Vec::new();
    Meter::run(state, |meter| {
        value.try_iter()?.checked().try_for_each(|item| {
            meter.charge_bytes(16)?;
            items.push(item?);
            Ok(())
        })
    })?;
    Ok(Value::make_object_iterable(items, |items| Box::new(items.iter().cloned())))
}

/// Returns the charging filter of an instruction, and the number of its operands.
fn find_charge(instruction: &Instruction<'_>) -> Option<(&'static str, usize)> {
    Some(match instruction {
        Instruction::Eq | Instruction::Ne | Instruction::Gt | Instruction::Gte | Instruction::Lt | Instruction::Lte => {
            (COMPARE, 2)
        }
        // An operator of a chain. The instruction does not say which one.
        Instruction::CompareAndPreserve(_) => (CHAIN, 2),
        Instruction::In => (IN, 2),
        Instruction::StringConcat => (CONCAT, 2),
        Instruction::Add => (ADD, 2),
        Instruction::GetItem => (ITEM, 2),
        Instruction::Slice => (SLICE, 4),
        Instruction::PushLoop(_) => (LOOP, 1),
        Instruction::BuildMap(pairs) => (MAP, pairs.checked_mul(2)?),
        Instruction::CallMethod("changed", Some(count)) => (CHANGED, usize::from(*count)),
        _ => return None,
    })
}

/// Returns the instructions, each with the instructions that charge for it. Jumps lead to the new positions.
///
/// The engine refuses a number that cannot be read if a name, a member or an element has it. With `has_inexact` an
/// instruction of ours refuses it in the result of a filter or method.
pub(super) fn add_charging_instructions<'s>(plain: &Instructions<'s>, has_inexact: bool) -> Instructions<'s> {
    let groups: Vec<Vec<Instruction<'s>>> = (0..)
        .map_while(|at| plain.get(at))
        .map(|instruction| expand_instruction(instruction.clone(), has_inexact))
        .collect();
    // The new start of each instruction. A jump leads to the charge before its target.
    let mut starts = Vec::with_capacity(groups.len() + 1);
    let mut next = 0_u32;
    for group in &groups {
        starts.push(next);
        next = next.saturating_add(u32::try_from(group.len()).unwrap_or(u32::MAX));
    }
    starts.push(next);
    let mut metered = Instructions::new(plain.name(), plain.source());
    for (at, group) in (0..).zip(groups) {
        for mut instruction in group {
            if let Instruction::Iterate(target)
            | Instruction::Jump(target)
            | Instruction::JumpIfFalse(target)
            | Instruction::JumpIfFalseOrPop(target)
            | Instruction::JumpIfTrueOrPop(target) = &mut instruction
            {
                let moved = usize::try_from(*target).ok().and_then(|target| starts.get(target));
                *target = moved.copied().unwrap_or(next);
            }
            match (plain.get_span(at), plain.get_line(at).and_then(|line| u16::try_from(line).ok())) {
                (Some(span), _) => metered.add_with_span(instruction, span),
                (None, Some(line)) => metered.add_with_line(instruction, line),
                (None, None) => metered.add(instruction),
            };
        }
    }
    metered
}

/// Returns an instruction with the instructions that charge for it and check its result.
fn expand_instruction(instruction: Instruction<'_>, has_inexact: bool) -> Vec<Instruction<'_>> {
    let apply = |name, count| Instruction::ApplyFilter(name, Some(count), BY_NAME);
    if let Instruction::EmitRaw(text) = &instruction {
        let bytes = Instruction::LoadConst(Value::from(text.len()));
        return vec![bytes, apply(RAW, 1), Instruction::DiscardTop, instruction];
    }
    let mut group = Vec::new();
    if let Some((name, count)) = find_charge(&instruction)
        && let Ok(short) = u16::try_from(count)
    {
        group.extend([apply(name, short), Instruction::UnpackList(count)]);
    }
    let returns_lazy_value = matches!(instruction, Instruction::Add | Instruction::Slice);
    let can_return_inexact =
        has_inexact && matches!(instruction, Instruction::ApplyFilter(..) | Instruction::CallMethod(..));
    group.push(instruction);
    group.extend(can_return_inexact.then(|| apply(VALID, 1)));
    group.extend(returns_lazy_value.then(|| apply(COLLECT, 1)));
    group
}
