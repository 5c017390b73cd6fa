module belay.dev/go

go 1.24.0
