module mainspring/bench

go 1.19
