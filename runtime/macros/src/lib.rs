//! `#[budgeted]`: yield checks at loop back-edges and where the context is handed on.

mod survey;

use proc_macro::TokenStream;
use proc_macro2::Span;
use quote::quote;
use survey::{Survey, is_short};
use syn::visit_mut::{self, VisitMut};
use syn::{
    Block, Error, Expr, ExprForLoop, FnArg, Ident, ItemFn, Lifetime, Pat, ReturnType, Type,
    parse_macro_input, parse_quote,
};

/// Meters an ordinary function that has a parameter `cx: &Cx`.
///
/// - Each iteration of a `for`, `while` or `loop` costs one op, whether it comes to its end or not.
/// - Each call of a function costs one op. Calls of methods and macros do not: what the standard library inlines is no
///   call.
/// - The function counts these by itself, up to `YIELD_INTERVAL` of them. Then, when it hands `cx` on, and when it
///   returns, they are charged to the task. A function that is called with `cx` finds less than 64 unpaid, a method that
///   is called with `cx`, or on it, none; no loop goes on for longer than an interval without a check. A loop of at most
///   16 iterations that can be seen (`for i in 0..3`) is counted as a whole.
/// - A function that panics is not charged for what it had not yet paid: less than an interval.
/// - Closures and items inside the function are left alone: they run with a context of their own, or are functions of
///   their own.
///
/// ```text
/// #[budgeted]
/// fn sum(cx: &Cx, values: &[u64]) -> u64 {
///     let mut sum = 0;
///     for value in values {
///         sum += value;
///     }
///     sum
/// }
/// ```
#[proc_macro_attribute]
pub fn budgeted(attributes: TokenStream, item: TokenStream) -> TokenStream {
    let attributes = proc_macro2::TokenStream::from(attributes);
    let function = parse_macro_input!(item as ItemFn);
    let result = if attributes.is_empty() {
        expand(function)
    } else {
        Err(Error::new_spanned(attributes, "#[budgeted] takes no arguments"))
    };
    result.unwrap_or_else(|error| error.to_compile_error()).into()
}

fn expand(mut function: ItemFn) -> Result<proc_macro2::TokenStream, Error> {
    let signature = &function.sig;
    if let Some(token) = &signature.asyncness {
        return Err(Error::new_spanned(
            token,
            "#[budgeted] meters stackful code; an async function yields by awaiting",
        ));
    }
    if let Some(token) = &signature.constness {
        return Err(Error::new_spanned(token, "a const function has no task to charge"));
    }
    let Some(context) = signature.inputs.iter().find_map(context_parameter) else {
        return Err(Error::new_spanned(
            &signature.inputs,
            "#[budgeted] needs a parameter `cx: &Cx` to charge",
        ));
    };
    let found = Survey::of(&function.block, &context);
    // The end of the function is the end of a block, or of a closure where something leaves it that cannot be rewritten.
    let as_closure = found.tries || found.opaque;
    let end = (!as_closure).then(|| Lifetime::new("'__mainspring_body", Span::mixed_site()));
    let mut inserter = Inserter { context: context.clone(), meter: local("meter"), end };
    inserter.visit_block_mut(&mut function.block);
    let Inserter { meter, end, .. } = inserter;
    let body = &function.block;
    let output = match &function.sig.output {
        ReturnType::Type(_, output) if matches!(&**output, Type::ImplTrait(_) | Type::Never(_)) => None,
        ReturnType::Type(_, output) => Some(quote!(#output)),
        ReturnType::Default => Some(quote!(())),
    };
    let result = local("result");
    let run = if let Some(end) = end {
        let output = output.map(|output| quote!(: #output));
        quote!(let #result #output = #end: #body;)
    } else {
        let output = output.map(|output| quote!(-> #output));
        quote!(let #result = #meter.run(move |#meter| #output #body);)
    };
    function.block = parse_quote!({
        let #meter = #context.meter();
        #[allow(clippy::let_unit_value)]
        #run
        #[allow(unreachable_code)]
        #meter.settle();
        #result
    });
    Ok(quote!(#function))
}

/// The name of a parameter `name: &Cx`.
fn context_parameter(argument: &FnArg) -> Option<Ident> {
    let FnArg::Typed(typed) = argument else { return None };
    let Type::Reference(reference) = &*typed.ty else { return None };
    let Type::Path(path) = &*reference.elem else { return None };
    let Pat::Ident(name) = &*typed.pat else { return None };
    (path.path.segments.last()?.ident == "Cx").then(|| name.ident.clone())
}

struct Inserter {
    context: Ident,
    meter: Ident,
    /// What `return` becomes a `break` to.
    end: Option<Lifetime>,
}

impl Inserter {
    /// Counts and checks a loop's iterations: where they end, since the body then follows the condition as it did before, or
    /// where they begin, if they can be left in between.
    fn tick(&mut self, body: &mut Block) {
        let found = Survey::of(body, &self.context);
        self.visit_block_mut(body);
        let meter = &self.meter;
        *body = if found.leaves() {
            parse_quote!({ #meter.iteration(); #body })
        } else {
            parse_quote!({
                #body
                #[allow(unreachable_code)]
                #meter.iteration();
            })
        };
    }

    fn for_loop(&mut self, mut each: ExprForLoop) -> Expr {
        self.visit_expr_mut(&mut each.expr);
        if is_short(&each) {
            self.visit_block_mut(&mut each.body);
            let meter = &self.meter;
            each.body.stmts.insert(0, parse_quote!(#meter.count();));
            return Expr::ForLoop(each);
        }
        let found = Survey::of(&each.body, &self.context);
        if found.loops || found.context || found.ends_loops() {
            self.tick(&mut each.body);
            return Expr::ForLoop(each);
        }
        // Nothing but the end of its items ends this loop, so that it can be run in pieces, which are counted as such.
        self.visit_block_mut(&mut each.body);
        let meter = &self.meter;
        // `match` keeps the temporaries of the iterated expression, as `for` does.
        let items = local("items");
        let expr = std::mem::replace(&mut *each.expr, parse_quote!((&mut #items).piece()));
        parse_quote! {
            match #meter.items(#expr) {
                mut #items => loop {
                    #[allow(unused_imports)]
                    use ::mainspring::meter::{CutPieces as _, TakePieces as _};
                    #each
                    if #items.is_over() {
                        break;
                    }
                }
            }
        }
    }

    fn is_context(&self, expr: &Expr) -> bool {
        matches!(expr, Expr::Path(path) if path.path.is_ident(&self.context))
    }

    /// The context goes to somebody whom the meter does not know.
    fn hand_on(&self, expr: &mut Expr) {
        if self.is_context(expr) {
            let meter = &self.meter;
            *expr = parse_quote!(#meter.hand_on(#expr));
        }
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
                *call.func = parse_quote!(({ #meter.count(); #path }));
            }
        } else {
            call.args.iter_mut().for_each(|argument| self.hand_on(argument));
            // A tuple, since a block would drop the call's temporaries at its end.
            *expr = parse_quote!((#meter.count(), #call).1);
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
            // They run elsewhere, or for somebody else.
            Expr::Closure(_) | Expr::Async(_) => {}
            _ => visit_mut::visit_expr_mut(self, expr),
        }
    }

    fn visit_item_mut(&mut self, _: &mut syn::Item) {}
}

/// A name of the expansion's own.
fn local(name: &str) -> Ident {
    Ident::new(&format!("__mainspring_{name}"), Span::mixed_site())
}
