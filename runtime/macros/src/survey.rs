//! What there is in a piece of code that decides how it can be metered.

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Block, Expr, ExprForLoop, ExprLit, Ident, Item, Lit, Local, Macro, Pat, RangeLimits, Stmt, Type};

/// Macros that expand to nothing that leaves a loop or a function, but for what is in their arguments.
const WELL_KNOWN: &[&str] = &[
    "assert",
    "assert_eq",
    "assert_ne",
    "dbg",
    "debug_assert",
    "debug_assert_eq",
    "debug_assert_ne",
    "eprint",
    "eprintln",
    "format",
    "matches",
    "panic",
    "print",
    "println",
    "todo",
    "unimplemented",
    "unreachable",
    "vec",
    "write",
    "writeln",
];

/// What a block has, apart from closures and items in it, which are functions of their own.
#[derive(Default)]
pub(crate) struct Survey {
    /// `return`.
    pub(crate) returns: bool,
    /// `?`.
    pub(crate) tries: bool,
    /// `break`, or a `continue` with a label, which may be that of a loop further out.
    pub(crate) breaks: bool,
    /// `continue`.
    pub(crate) continues: bool,
    /// A loop.
    pub(crate) loops: bool,
    /// A macro that may have any of these.
    pub(crate) opaque: bool,
    /// The context by its name, closures included: they may use it.
    pub(crate) context: bool,
    /// A closure or an item, which would be another one if it were written twice.
    pub(crate) is_one_of_a_kind: bool,
}

impl Survey {
    pub(crate) fn of(block: &Block, context: &Ident) -> Self {
        Self::by(context, |surveyor| surveyor.visit_block(block))
    }

    pub(crate) fn of_expr(expr: &Expr, context: &Ident) -> Self {
        Self::by(context, |surveyor| surveyor.visit_expr(expr))
    }

    pub(crate) fn of_statement(statement: &Stmt, context: &Ident) -> Self {
        Self::by(context, |surveyor| surveyor.visit_stmt(statement))
    }

    fn by<'a>(context: &'a Ident, look: impl FnOnce(&mut Surveyor<'a>)) -> Self {
        let mut surveyor =
            Surveyor { found: Self::default(), context, in_closure: false, in_typed_let: false };
        look(&mut surveyor);
        surveyor.found
    }

    /// Whether the end of the block may be passed by.
    pub(crate) fn leaves(&self) -> bool {
        self.continues || self.ends_loops()
    }

    /// Whether a loop around the block may be ended by it.
    pub(crate) fn ends_loops(&self) -> bool {
        self.returns || self.tries || self.breaks || self.opaque
    }

    /// Whether a `for` loop around the block ends with its items, and nobody looks at what was paid meanwhile.
    pub(crate) fn is_left_by_its_items_only(&self) -> bool {
        !self.ends_loops() && !self.context
    }
}

struct Surveyor<'a> {
    found: Survey,
    context: &'a Ident,
    in_closure: bool,
    /// In what a `let` with a written type is set to: a closure has no name, so it does not get out of there.
    in_typed_let: bool,
}

impl Surveyor<'_> {
    /// Words and signs that would be seen if the macro's arguments were parsed.
    fn visit_tokens(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.visit_tokens(group.stream()),
                TokenTree::Punct(sign) => self.found.opaque |= sign.as_char() == '?',
                TokenTree::Ident(word) => {
                    self.found.context |= word == *self.context;
                    self.found.opaque |=
                        ["return", "break", "continue", "for", "while", "loop"].iter().any(|&w| word == w);
                }
                TokenTree::Literal(_) => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Surveyor<'_> {
    fn visit_expr(&mut self, expr: &'ast Expr) {
        if let Expr::Closure(_) | Expr::Async(_) = expr {
            self.found.is_one_of_a_kind |= !self.in_typed_let;
            let was = std::mem::replace(&mut self.in_closure, true);
            visit::visit_expr(self, expr);
            self.in_closure = was;
            return;
        }
        if !self.in_closure {
            match expr {
                Expr::Return(_) => self.found.returns = true,
                Expr::Try(_) => self.found.tries = true,
                Expr::Break(_) => self.found.breaks = true,
                Expr::Continue(next) => {
                    self.found.continues = true;
                    self.found.breaks |= next.label.is_some();
                }
                Expr::ForLoop(each) if is_short(each) => {}
                Expr::ForLoop(_) | Expr::While(_) | Expr::Loop(_) => self.found.loops = true,
                _ => {}
            }
        }
        visit::visit_expr(self, expr);
    }

    fn visit_local(&mut self, local: &'ast Local) {
        let was = self.in_typed_let;
        self.in_typed_let |= matches!(&local.pat, Pat::Type(typed) if !is_inferred(&typed.ty));
        visit::visit_local(self, local);
        self.in_typed_let = was;
    }

    fn visit_ident(&mut self, ident: &'ast Ident) {
        self.found.context |= ident == self.context;
    }

    fn visit_macro(&mut self, mac: &'ast Macro) {
        self.found.opaque |= !is_well_known(mac) && !self.in_closure;
        let before = self.found.opaque;
        self.visit_tokens(mac.tokens.clone());
        if self.in_closure {
            self.found.opaque = before;
        }
    }

    fn visit_item(&mut self, _: &'ast Item) {
        self.found.is_one_of_a_kind = true;
    }
}

/// Whether it expands to nothing of note but what is in its arguments.
pub(crate) fn is_well_known(mac: &Macro) -> bool {
    let name = mac.path.segments.last().map(|segment| segment.ident.to_string());
    name.is_some_and(|name| WELL_KNOWN.contains(&name.as_str()))
}

/// Whether a type has a `_` in it.
fn is_inferred(ty: &Type) -> bool {
    struct Inferred(bool);
    impl<'ast> Visit<'ast> for Inferred {
        fn visit_type_infer(&mut self, _: &'ast syn::TypeInfer) {
            self.0 = true;
        }
    }
    let mut inferred = Inferred(false);
    inferred.visit_type(ty);
    inferred.0
}

/// The most iterations of a loop that is not worth a check.
const SHORT: u64 = 16;

/// Whether a loop has few iterations, in plain sight, and none in it: it is counted as straight code.
pub(crate) fn is_short(each: &ExprForLoop) -> bool {
    let Expr::Range(range) = &*each.expr else { return false };
    let literal = |expr: &Option<Box<Expr>>| match expr.as_deref() {
        Some(Expr::Lit(ExprLit { lit: Lit::Int(number), .. })) => number.base10_parse::<u64>().ok(),
        _ => None,
    };
    let (Some(begin), Some(end)) = (literal(&range.start), literal(&range.end)) else { return false };
    let inclusive = u64::from(matches!(range.limits, RangeLimits::Closed(_)));
    let mut loops = Loops(false);
    loops.visit_block(&each.body);
    end.saturating_sub(begin) + inclusive <= SHORT && !loops.0
}

/// Whether there is a loop, or a macro that may have one.
struct Loops(bool);

impl<'ast> Visit<'ast> for Loops {
    fn visit_expr(&mut self, expr: &'ast Expr) {
        self.0 |= matches!(expr, Expr::ForLoop(_) | Expr::While(_) | Expr::Loop(_));
        visit::visit_expr(self, expr);
    }

    fn visit_macro(&mut self, _: &'ast Macro) {
        self.0 = true;
    }
}
