//! `#[budgeted]`: yield checks at loop back-edges and where the context is handed on.

mod certain;
mod inserter;
mod strides;
mod survey;

use inserter::Inserter;
use proc_macro::TokenStream;
use proc_macro2::Span;
use quote::quote;
use survey::Survey;
use syn::visit_mut::VisitMut;
use syn::{Error, FnArg, Ident, ItemFn, Lifetime, Pat, ReturnType, Type, parse_macro_input, parse_quote};

/// Meters an ordinary function that has a parameter `cx: &Cx`.
///
/// - Each iteration of a `for`, `while` or `loop` costs one op, whether it comes to its end or not.
/// - Each call of a function costs one op. Calls of methods and macros do not: what the standard library inlines is no
///   call.
/// - The function counts these by itself, up to 512 of them. Then, when it hands `cx` on, and when it returns, they are
///   paid for, which is a yield check. A function that is called with `cx` finds less than 64 unpaid, a method that is called
///   with `cx`, or on it, none.
/// - A loop that ends with its items is counted as a whole if it knows how many they are, and runs in pieces of 512 if they
///   are more. Its body is written twice for that, unless it has a closure that may get out of it, or an item.
/// - A loop `while i < end { …; i += step; }` has no count of its own if nothing else in it changes `i` or `step`, calls a function or
///   leaves it: it runs in such pieces too, and `i` tells how often it went round. `end` is a number, a variable, a field of one, or the
///   `len()` of one, and is evaluated once more for each piece. Its body is written twice.
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
    let meter = local("meter");
    let mut inserter = Inserter::new(context.clone(), meter.clone(), end.clone());
    inserter.visit_block_mut(&mut function.block);
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

/// A name of the expansion's own.
fn local(name: &str) -> Ident {
    Ident::new(&format!("__mainspring_{name}"), Span::mixed_site())
}
