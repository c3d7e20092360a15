//! Puts the meter into a function's body.
//!
//! Conserved: what the body computes, its temporaries' lives included, and one op for each iteration and each call.

use crate::certain::{self, mark_check, take_mark};
use crate::local;
use crate::strides::Strides;
use crate::survey::{Survey, is_short};
use syn::visit_mut::{self, VisitMut};
use syn::{Block, Expr, ExprForLoop, ExprWhile, Ident, Item, Lifetime, Stmt, parse_quote};

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

    /// Counts a loop's iterations: by a check that each of them comes by, if there is one. Else where they end, since the body then
    /// follows the condition as it did before, or where they begin, if they can be left in between.
    fn tick(&mut self, body: &mut Block) {
        let found = Survey::of(body, &self.context);
        let is_counted = mark_check(body, &self.context);
        self.visit_block_mut(body);
        if is_counted {
            return;
        }
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
        let counts_around = take_mark(&mut each.attrs);
        self.visit_expr_mut(&mut each.expr);
        let found = Survey::of(&each.body, &self.context);
        if is_short(&each) && !found.context {
            let meter = self.meter.clone();
            self.visit_block_mut(&mut each.body);
            each.body.stmts.insert(0, parse_quote!(#meter.add();));
            return Expr::ForLoop(each);
        }
        if !found.is_left_by_its_items_only() {
            self.tick(&mut each.body);
            return Expr::ForLoop(each);
        }
        let is_counted_inside = found.loops && mark_check(&mut each.body, &self.context);
        self.visit_block_mut(&mut each.body);
        if is_counted_inside {
            return Expr::ForLoop(each);
        }
        let (meter, items) = (&self.meter, local("items"));
        let expr = std::mem::replace(&mut *each.expr, parse_quote!(#items));
        let run = self.in_pieces(&found, &items, &each, counts_around);
        // `match` keeps the temporaries of the iterated expression, as `for` does.
        parse_quote!(match #meter.each(#expr) { #items => #run })
    }

    /// A loop that nothing but the end of its items ends: it is counted as a whole if it is not too long, and runs in pieces
    /// otherwise, each of which is counted as such. A loop with others in it is not written twice.
    fn in_pieces(&self, found: &Survey, items: &Ident, whole: &ExprForLoop, counts_around: bool) -> Expr {
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
        if found.is_one_of_a_kind || found.loops {
            return in_pieces;
        }
        if counts_around {
            return parse_quote! {
                if #meter.takes_with_round(&#items) { #whole } else { #meter.count_around(); #in_pieces }
            };
        }
        parse_quote!(if #meter.takes(&#items) { #whole } else { #in_pieces })
    }

    /// A loop whose condition and last statement are those of a counter that goes up: it runs in pieces, without a count of its own, as
    /// long as the counter can be told to get there.
    fn while_loop(&mut self, mut each: ExprWhile) -> Expr {
        let strides = Strides::of(&each, &self.context);
        let plain = each.clone();
        self.visit_expr_mut(&mut each.cond);
        self.tick(&mut each.body);
        let Some(Strides { counter, bound, step }) = strides else { return Expr::While(each) };
        let (mut in_piece, piece) = (plain, local("piece"));
        in_piece.cond = parse_quote!(#counter < #piece.bound(#bound));
        self.visit_block_mut(&mut in_piece.body);
        let meter = &self.meter;
        parse_quote! {
            if #counter < #bound {
                #[allow(unused_imports)]
                use ::mainspring::meter::{AnyStrides as _, PlannedStrides as _};
                loop {
                    let Some(#piece) = (&#meter.strides(&#counter, &#step)).piece() else {
                        #each
                        break;
                    };
                    #in_piece
                    if #piece.is_over(&#meter, &#counter, &#step) {
                        break;
                    }
                }
            }
        }
    }

    /// The context goes to code that the meter does not know.
    fn hand_on(&self, expr: &mut Expr) {
        if self.is_context(expr) {
            let meter = &self.meter;
            *expr = parse_quote!(#meter.hand_on(#expr));
        }
    }

    fn is_context(&self, expr: &Expr) -> bool {
        certain::is_context(expr, &self.context)
    }

    /// Counts a call of a function.
    fn call(&self, expr: &mut Expr) {
        let Expr::Call(call) = expr else { return };
        let meter = &self.meter;
        let counts_around = take_mark(&mut call.attrs);
        if let Expr::Path(path) = &*call.func {
            if !certain::counts(&call.func) {
                call.args.iter_mut().for_each(|argument| self.hand_on(argument));
            } else if let Some(context) = call.args.iter_mut().find(|argument| self.is_context(argument)) {
                *context = if counts_around {
                    parse_quote!(#meter.call_with_in_round(#context))
                } else {
                    parse_quote!(#meter.call_with(#context))
                };
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
            Expr::While(each) => *expr = self.while_loop(each.clone()),
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
