//! Puts the meter into a function's body.
//!
//! Conserved: what the body computes, its temporaries' lives included, and one op for each iteration and each call.

use crate::local;
use crate::survey::{Survey, is_short};
use syn::visit_mut::{self, VisitMut};
use syn::{Block, Expr, ExprForLoop, Ident, Item, Lifetime, Stmt, parse_quote};

pub(crate) struct Inserter {
    context: Ident,
    meter: Ident,
    /// What `return` becomes a `break` to.
    end: Option<Lifetime>,
}

impl Inserter {
    pub(crate) fn new(context: Ident, meter: Ident, end: Option<Lifetime>) -> Self {
        Self { context, meter, end }
    }

    pub(crate) fn into_names(self) -> (Ident, Option<Lifetime>) {
        (self.meter, self.end)
    }

    /// Counts a loop's iterations: where they end, since the body then follows the condition as it did before, or where
    /// they begin, if they can be left in between.
    fn tick(&mut self, body: &mut Block) {
        let found = Survey::of(body, &self.context);
        self.visit_block_mut(body);
        let meter = &self.meter;
        let count: Stmt =
            if found.loops { parse_quote!(#meter.count_around();) } else { parse_quote!(#meter.count();) };
        *body = if found.leaves() {
            parse_quote!({ #count #body })
        } else {
            parse_quote!({
                #body
                #[allow(unreachable_code)]
                #count
            })
        };
    }

    fn for_loop(&mut self, mut each: ExprForLoop) -> Expr {
        self.visit_expr_mut(&mut each.expr);
        let found = Survey::of(&each.body, &self.context);
        if is_short(&each) && !found.context {
            let meter = self.meter.clone();
            self.visit_block_mut(&mut each.body);
            each.body.stmts.insert(0, parse_quote!(#meter.add();));
            return Expr::ForLoop(each);
        }
        if found.ends_loops() || found.context || found.loops {
            self.tick(&mut each.body);
            return Expr::ForLoop(each);
        }
        self.visit_block_mut(&mut each.body);
        let (meter, items) = (&self.meter, local("items"));
        let expr = std::mem::replace(&mut *each.expr, parse_quote!(#items));
        let run = self.in_pieces(&found, &items, &each);
        // `match` keeps the temporaries of the iterated expression, as `for` does.
        parse_quote!(match #meter.each(#expr) { #items => #run })
    }

    /// A loop that nothing but the end of its items ends: it is counted as a whole if it is not too long, and runs in pieces
    /// otherwise, each of which is counted as such.
    fn in_pieces(&self, found: &Survey, items: &Ident, whole: &ExprForLoop) -> Expr {
        let (meter, pieces) = (&self.meter, local("pieces"));
        let piece = ExprForLoop { expr: parse_quote!((&mut #pieces).piece()), ..whole.clone() };
        let in_pieces: Expr = parse_quote! {
            match #meter.items(#items) {
                mut #pieces => loop {
                    #[allow(unused_imports)]
                    use ::mainspring::meter::{CutPieces as _, TakePieces as _};
                    #piece
                    if #pieces.is_over() {
                        break;
                    }
                }
            }
        };
        if found.is_one_of_a_kind {
            return in_pieces;
        }
        parse_quote!(if #meter.takes(&#items) { #whole } else { #in_pieces })
    }

    /// The context goes to code that the meter does not know.
    fn hand_on(&self, expr: &mut Expr) {
        if self.is_context(expr) {
            let meter = &self.meter;
            *expr = parse_quote!(#meter.hand_on(#expr));
        }
    }

    fn is_context(&self, expr: &Expr) -> bool {
        matches!(expr, Expr::Path(path) if path.path.is_ident(&self.context))
    }

    /// Counts a call of a function: a path whose last name begins with a capital makes a value, it calls nothing.
    fn call(&self, expr: &mut Expr) {
        let Expr::Call(call) = expr else { return };
        let meter = &self.meter;
        if let Expr::Path(path) = &*call.func {
            let last = path.path.segments.last().map(|segment| segment.ident.to_string());
            if last.is_some_and(|name| name.starts_with(char::is_uppercase)) {
                call.args.iter_mut().for_each(|argument| self.hand_on(argument));
            } else if let Some(context) = call.args.iter_mut().find(|argument| self.is_context(argument)) {
                *context = parse_quote!(#meter.call_with(#context));
            } else {
                *call.func = parse_quote!(({ #meter.add(); #path }));
            }
        } else {
            call.args.iter_mut().for_each(|argument| self.hand_on(argument));
            // A tuple, since a block would drop the call's temporaries at its end.
            *expr = parse_quote!((#meter.add(), #call).1);
        }
    }
}

impl VisitMut for Inserter {
    fn visit_expr_mut(&mut self, expr: &mut Expr) {
        match expr {
            Expr::ForLoop(each) => *expr = self.for_loop(each.clone()),
            Expr::While(each) => {
                self.visit_expr_mut(&mut each.cond);
                self.tick(&mut each.body);
            }
            Expr::Loop(each) => self.tick(&mut each.body),
            Expr::Call(call) => {
                visit_mut::visit_expr_call_mut(self, call);
                self.call(expr);
            }
            Expr::MethodCall(call) => {
                visit_mut::visit_expr_method_call_mut(self, call);
                self.hand_on(&mut call.receiver);
                call.args.iter_mut().for_each(|argument| self.hand_on(argument));
            }
            Expr::Return(leave) => {
                visit_mut::visit_expr_return_mut(self, leave);
                if let Some(end) = &self.end {
                    let value = &leave.expr;
                    *expr = parse_quote!(break #end #value);
                }
            }
            // They run elsewhere, or for another caller.
            Expr::Closure(_) | Expr::Async(_) => {}
            _ => visit_mut::visit_expr_mut(self, expr),
        }
    }

    fn visit_item_mut(&mut self, _: &mut Item) {}
}
