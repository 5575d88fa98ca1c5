//! The shape of an expression of a template, read from its syntax tree.
//!
//! Nothing is evaluated: an expression whose shape does not follow from its tree is of unknown shape.

use minijinja::machinery::ast;

use crate::reference::Member;

/// Returns the variable and the members of an expression that is a path of constants.
pub(super) fn read_path<'s>(expr: &ast::Expr<'s>) -> Option<(&'s str, Vec<Member>)> {
    let mut members = Vec::new();
    let mut expr = expr;
    loop {
        expr = match expr {
            ast::Expr::Var(var) => {
                members.reverse();
                return Some((var.id, members));
            }
            ast::Expr::GetAttr(get) => {
                members.push(Member::Name(get.name.to_owned()));
                &get.expr
            }
            ast::Expr::GetItem(get) => {
                members.push(constant_member(&get.subscript_expr)?);
                &get.expr
            }
            _ => return None,
        };
    }
}

pub(super) fn constant_member(key: &ast::Expr<'_>) -> Option<Member> {
    match key {
        ast::Expr::Const(key) => match key.value.as_str() {
            Some(name) => Some(Member::Name(name.to_owned())),
            None => key.value.as_i64().map(Member::Position),
        },
        ast::Expr::UnaryOp(op) if matches!(op.op, ast::UnaryOpKind::Neg) => match constant_member(&op.expr)? {
            Member::Position(position) => position.checked_neg().map(Member::Position),
            Member::Name(_) => None,
        },
        _ => None,
    }
}

/// Whether an expression is always a number or an error.
pub(super) fn is_number(expr: &ast::Expr<'_>) -> bool {
    match expr {
        ast::Expr::Const(constant) => constant.value.is_number(),
        ast::Expr::UnaryOp(op) => matches!(op.op, ast::UnaryOpKind::Neg) && is_number(&op.expr),
        // With arguments, `int` and `float` can return a default of another type.
        ast::Expr::Filter(filter) => match filter.name {
            "int" | "float" => filter.args.is_empty(),
            name => matches!(name, "abs" | "round" | "length" | "count"),
        },
        ast::Expr::GetAttr(get) => {
            matches!(&get.expr, ast::Expr::Var(var) if var.id == "loop") && get.name.starts_with("index")
        }
        ast::Expr::BinOp(op) => match op.op {
            ast::BinOpKind::Add | ast::BinOpKind::Mul => is_number(&op.left) && is_number(&op.right),
            ast::BinOpKind::Sub
            | ast::BinOpKind::Div
            | ast::BinOpKind::FloorDiv
            | ast::BinOpKind::Rem
            | ast::BinOpKind::Pow => true,
            _ => false,
        },
        _ => false,
    }
}
