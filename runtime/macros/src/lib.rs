//! `#[budgeted]`: yield checks at loop back-edges and before calls.

use proc_macro::TokenStream;
use quote::quote;
use syn::visit_mut::{self, VisitMut};
use syn::{Block, Error, Expr, ExprCall, FnArg, Ident, ItemFn, Pat, Type, parse_macro_input, parse_quote};

/// Meters an ordinary function that has a parameter of type `&Cx`.
///
/// - Each iteration of a `for`, `while` or `loop` costs one op. They are paid for every `YIELD_INTERVAL` iterations, at a
///   check on the back-edge, and the rest when the function returns: no iteration is free.
/// - Each call of a function costs one op, at a check before it. Calls of methods and macros do not: what the standard
///   library inlines is no call.
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
    Inserter.visit_block_mut(&mut function.block);
    let body = &function.block;
    function.block = parse_quote!({
        #[allow(unused_mut, unused_variables)]
        let mut __mainspring_meter = #context.meter();
        #body
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

struct Inserter;

impl Inserter {
    fn tick(&mut self, body: &mut Block) {
        self.visit_block_mut(body);
        body.stmts.insert(0, parse_quote!(__mainspring_meter.iteration();));
    }
}

impl VisitMut for Inserter {
    fn visit_expr_mut(&mut self, expr: &mut Expr) {
        match expr {
            Expr::ForLoop(each) => {
                self.visit_expr_mut(&mut each.expr);
                self.tick(&mut each.body);
            }
            Expr::While(each) => {
                self.visit_expr_mut(&mut each.cond);
                self.tick(&mut each.body);
            }
            Expr::Loop(each) => self.tick(&mut each.body),
            Expr::Call(call) => {
                visit_mut::visit_expr_call_mut(self, call);
                if is_function(call) {
                    let call = call.clone();
                    *expr = parse_quote!({
                        __mainspring_meter.call();
                        #call
                    });
                }
            }
            // They run elsewhere, or for somebody else.
            Expr::Closure(_) | Expr::Async(_) => {}
            _ => visit_mut::visit_expr_mut(self, expr),
        }
    }

    fn visit_item_mut(&mut self, _: &mut syn::Item) {}
}

/// Whether a call is of a function: a path whose last name begins with a capital makes a value, it calls nothing.
fn is_function(call: &ExprCall) -> bool {
    let Expr::Path(path) = &*call.func else { return true };
    let last = path.path.segments.last().map(|segment| segment.ident.to_string());
    last.is_none_or(|name| !name.starts_with(char::is_uppercase))
}
