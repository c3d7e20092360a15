//! `mainspring man`.

use crate::args::{Cli, ManArgs};
use crate::failure::Failure;
use crate::outfile::Target;
use crate::output::Output;
use clap::CommandFactory;
use clap_mangen::Man;

/// Prints a manual page, or writes them all.
pub fn man(args: &ManArgs, output: Output) -> Result<(), Failure> {
    let mut program = Cli::command();
    program.build();
    if let Some(dir) = &args.dir {
        let shown = |command: &&clap::Command| command.get_name() != "help" && !command.is_hide_set();
        let commands = program.get_subcommands().filter(shown);
        let pages = commands.map(|command| (format!("mainspring-{}.1", command.get_name()), page(command)));
        let own = ("mainspring.1".to_owned(), page(&program));
        for (name, text) in std::iter::once(own).chain(pages) {
            let path = dir.join(name);
            Target::resolve(&path)?.open()?.write(|file| file.write_all(&text))?;
        }
        return Ok(());
    }
    let page = match &args.command {
        None => page(&program),
        Some(name) => match program.find_subcommand(name) {
            Some(command) => page(command),
            None => return Err(Failure::NoCommand { name: name.clone() }),
        },
    };
    output.write(|stdout| stdout.write_all(&page))
}

fn page(command: &clap::Command) -> Vec<u8> {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let mut text = Vec::new();
    // Memory takes all that is written to it.
    let man = Man::new(command.clone().display_name(&name)).title(name.to_uppercase());
    let man = man.source(concat!("mainspring ", env!("CARGO_PKG_VERSION"))).manual("Mainspring");
    let _ = man.render(&mut text);
    text
}
